//! The policy's file while it is served: what changes in it holds for calls that begin afterwards.
//!
//! Half a file may parse, and lack the rules behind the cut: a gate less is a permission more. So a file
//! is taken when it has rested, when it ends as its lines do, and when it is not just the beginning of
//! what holds already. Whatever is not taken is said once, and what held goes on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use oncegate_sandbox::policy::Policy;

use super::facts::Facts;
use super::stamp::{Stamp, stamp};
use crate::commands::policy::asked;
use crate::home::Home;

/// How long a file rests before it is read: editors and copies empty a file first and write it then.
const RESTS: Duration = Duration::from_secs(2);

/// Another policy, and what is said when it holds.
pub(super) struct Taken {
    pub(super) policy: Policy,
    pub(super) words: String,
}

/// The file, and what was read from it.
pub(super) struct PolicyFile {
    home: Home,
    path: PathBuf,
    /// What the command line fixes: a policy that forbids it could not be started under.
    facts: Facts,
    policy: Policy,
    text: String,
    /// The file as it was when it was last judged; none: there was no file.
    judged: Option<Stamp>,
    /// The file that was judged last was not taken.
    refused: bool,
    /// The file as it looks now, and since when.
    rests: Option<(Option<Stamp>, Instant)>,
}

impl PolicyFile {
    /// Reads it; what is wrong with it ends the start.
    pub(super) fn open(home: &Home, facts: Facts) -> anyhow::Result<(Self, Policy)> {
        let path = home.policy_file();
        let judged = stamp(&path);
        let (policy, text) = home.policy_and_text()?;
        super::check(&policy, &facts)?;
        let file =
            Self { home: home.clone(), path, facts, policy: policy.clone(), text, judged, refused: false, rests: None };
        Ok((file, policy))
    }

    /// The policy that holds from now on, if it is another one.
    pub(super) fn look(&mut self) -> Option<Taken> {
        let now = stamp(&self.path);
        if now == self.judged {
            self.rests = None;
            return None;
        }
        match &self.rests {
            Some((seen, since)) if *seen == now && since.elapsed() >= RESTS => {}
            Some((seen, _)) if *seen == now => return None,
            _ => {
                self.rests = Some((now, Instant::now()));
                return None;
            }
        }
        let read = self.read();
        if stamp(&self.path) != now {
            // It was written while it was read.
            return None;
        }
        (self.judged, self.rests, self.refused) = (now, None, read.is_err());
        match read {
            Ok((policy, text)) => self.take(policy, text),
            Err(error) => {
                let path = self.path.display();
                tracing::error!(
                    "{path} has changed and IS NOT TAKEN; the policy from before goes on to hold. {error:#}\n\
                     Correct the file, or put the earlier one back; `oncegate policy check` says whether it can be \
                     read. It is taken {} seconds after its last change",
                    RESTS.as_secs()
                );
                None
            }
        }
    }

    /// Whether the file is another than the one that holds, and was not taken.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    fn take(&mut self, policy: Policy, text: String) -> Option<Taken> {
        if text == self.text {
            return None;
        }
        let (path, now, before) = (self.path.display(), told(&policy), told(&self.policy));
        let words = format!("{path} has changed and holds from now on: {now}; before: {before}");
        (self.policy, self.text) = (policy.clone(), text);
        Some(Taken { policy, words })
    }

    fn read(&self) -> anyhow::Result<(Policy, String)> {
        let path = self.path.display();
        if !self.path.exists() {
            bail!("{path} is not there any more; to grant nothing, leave a file with nothing but a comment");
        }
        let (policy, text) = self.home.policy_and_text()?;
        super::check(&policy, &self.facts)?;
        let lines = text.lines().count();
        if !text.ends_with('\n') && (self.text.is_empty() || self.text.ends_with('\n')) {
            bail!("{path}:{lines}: the last line has no end, as in a file that was cut off; end it");
        }
        if self.text.starts_with(&text) && text != self.text && !policy.only_grants_less_than(&self.policy) {
            bail!(
                "{path}:{lines}: this is the policy that holds without what follows this line, as in a file that was \
                 cut off, and rules that ask or bind are gone with it; if that is meant, say so in a comment at the top"
            );
        }
        Ok((policy, text))
    }
}

/// What the operator recognises a policy by.
fn told(policy: &Policy) -> String {
    let grants: usize = policy.components.iter().map(|rule| rule.grant.len()).sum();
    format!("{grants} grants{}", asked(policy))
}
