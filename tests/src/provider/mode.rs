//! The ways in which a provider goes wrong, and the rules that say which request meets which.

use serde::{Deserialize, Serialize};

/// What happens to one request. Unless a mode says "nothing happened", the effect was counted
/// before the answer went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The right answer.
    Clean,
    /// Reads the request, never answers; nothing happened.
    HangBefore,
    /// Reads the first line of the request and no more, never answers; nothing happened.
    AcceptThenHang,
    /// Resets the connection after the first line of the request; nothing happened.
    ResetBefore,
    /// Refuses with 402; nothing happened.
    #[serde(rename = "reject-402")]
    Reject402,
    /// 503 from a proxy in front; nothing happened, but the answer does not prove it.
    #[serde(rename = "error-503-before")]
    Error503Before,
    /// 429 from a rate limiter in front; nothing happened, but the answer does not prove it.
    #[serde(rename = "error-429-before")]
    Error429Before,
    /// Does it and never answers.
    CompleteThenHang,
    /// Does it and resets the connection before a byte of the answer.
    CompleteThenReset,
    /// Does it and says 500.
    #[serde(rename = "error-500-after")]
    Error500After,
    /// Does it and says 429.
    #[serde(rename = "error-429-after")]
    Error429After,
    /// Does it; 200 with an HTML page.
    Garbage,
    /// Does it; the right head, half of the body, then an orderly close.
    Truncated,
    /// Does it; the right answer with 20 MB more in it.
    #[serde(rename = "big-20mb")]
    Big20Mb,
    /// Does it; an answer with bytes that are not UTF-8.
    #[serde(rename = "non-utf8")]
    NonUtf8,
    /// Does it; the right head, then a reset.
    ResetAfterHeaders,
    /// Does it; the whole body, but the last chunk never comes.
    HeldOpen,
    /// Does it; the right answer, one small piece every 100 ms.
    Slow,
    /// Does it the first time and resets the connection; refuses the identical request with 402 from
    /// then on, though it has happened.
    RefusedOnResend,
}

impl Mode {
    /// True when the request never reaches the domain.
    pub fn stops_before(self) -> bool {
        matches!(
            self,
            Self::HangBefore
                | Self::AcceptThenHang
                | Self::ResetBefore
                | Self::Reject402
                | Self::Error503Before
                | Self::Error429Before
        )
    }
}

/// Which requests meet a mode, and how many of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What happens.
    pub mode: Mode,
    /// The path without its query; a `*` at the end stands for the rest.
    #[serde(default = "every_path")]
    pub path: String,
    /// The method; none is any.
    #[serde(default)]
    pub method: Option<String>,
    /// So many requests pass before the rule begins.
    #[serde(default)]
    pub after: u64,
    /// How many requests meet it; none is all.
    #[serde(default)]
    pub times: Option<u64>,
    /// One in so many meets it; none is each.
    #[serde(default)]
    pub every: Option<u64>,
}

fn every_path() -> String {
    "*".to_owned()
}

/// The rules in force, first come first served.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Adds one behind the others.
    pub fn add(&mut self, rule: Rule) {
        self.0.push(rule);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The mode of the next request for that method and path.
    pub fn take(&mut self, method: &str, path: &str) -> Mode {
        for rule in &mut self.0 {
            if !rule.matches(method, path) || rule.times == Some(0) {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            if let Some(every) = rule.every.filter(|every| *every > 1) {
                rule.after = every - 1;
            }
            if let Some(times) = &mut rule.times {
                *times -= 1;
            }
            return rule.mode;
        }
        Mode::Clean
    }
}

impl Rule {
    fn matches(&self, method: &str, path: &str) -> bool {
        let path_matches = match self.path.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == self.path,
        };
        path_matches && self.method.as_deref().is_none_or(|known| known == method)
    }
}
