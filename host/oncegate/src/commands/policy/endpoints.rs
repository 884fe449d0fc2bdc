//! Endpoints of a policy that could never be used as they are written. No name is resolved for this.

use std::net::IpAddr;

use oncegate_contract::DatabaseAddress;
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{egress, http};

/// One warning per such endpoint; `text` is the policy's, to say in which line.
pub(crate) async fn unusable(policy: &Policy, text: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, rule) in &policy.endpoints {
        let place = line(text, name).map_or_else(String::new, |line| format!("line {line}: "));
        if let Some(Err(why)) = match &rule.ca {
            Some(file) => Some(http::probe_ca(file).await),
            None => None,
        } {
            warnings.push(format!("{place}endpoint.{name}.ca: the file: {why}, so that nothing can be sent there"));
        }
        let Some(url) = &rule.url else { continue };
        let Some(why) = refused(policy, url, rule.allow_private).await else { continue };
        warnings.push(format!("{place}endpoint.{name}.url: {why}, so that nothing can be sent there"));
    }
    warnings
}

async fn refused(policy: &Policy, url: &str, allow_private: bool) -> Option<String> {
    // A database is reached under the rules of https: where nothing is encrypted, `decide` says what else it needs.
    let url = match DatabaseAddress::parse(url) {
        Ok(file) if file.host.is_empty() => return None,
        Ok(found) if found.host.contains(':') => format!("https://[{}]:{}/", found.host, found.port),
        Ok(found) => format!("https://{}:{}/", found.host, found.port),
        Err(_) => url.to_owned(),
    };
    let url = url.as_str();
    let target = match egress::target(url, allow_private) {
        Ok(target) => target,
        Err(error) => return Some(advised(error.to_string(), allow_private)),
    };
    // A literal has its address without asking anybody.
    target.host.parse::<IpAddr>().ok()?;
    let found = target.addresses(&policy.resolver, allow_private).await;
    found.err().map(|error| advised(error.to_string(), allow_private))
}

fn advised(why: String, allow_private: bool) -> String {
    if allow_private { why } else { format!("{why} (without `allow-private = true`)") }
}

/// The line of the endpoint's table, counted from 1.
fn line(text: &str, name: &str) -> Option<usize> {
    let heads = [format!("[endpoint.{name}]"), format!("[endpoint.\"{name}\"]"), format!("[endpoint.'{name}']")];
    let is_head = |line: &str| heads.iter().any(|head| line.trim_start().starts_with(head.as_str()));
    text.lines().position(is_head).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn warned(text: &str) -> Vec<String> {
        unusable(&Policy::parse("p.toml", text).unwrap(), text).await
    }

    #[tokio::test]
    async fn what_can_never_be_reached_is_named_with_its_line() {
        for (url, why) in [
            ("http://pay.example", "plain http"),
            ("http://127.0.0.1:8080", "plain http"),
            ("https://127.0.0.1:8443", "loopback"),
            ("https://10.1.2.3", "private"),
            ("https://[::1]", "loopback"),
            ("postgres://127.0.0.1/x", "loopback"),
            ("mysql://[::1]:3306/x", "loopback"),
        ] {
            let said = warned(&format!("\n[endpoint.pay]\nurl = \"{url}\"\naccount = \"a\"\n")).await;
            assert_eq!(said.len(), 1, "{url}");
            assert!(said[0].starts_with("line 2: endpoint.pay.url: ") && said[0].contains(why), "{said:?}");
        }
        let metadata = "[endpoint.pay]\nurl = \"http://169.254.169.254\"\naccount = \"a\"\nallow-private = true\n";
        assert!(warned(metadata).await[0].contains("metadata"));
    }

    #[tokio::test]
    async fn a_file_of_issuers_that_is_none_is_named() {
        let said = warned("[endpoint.pay]\nca = \"/nowhere/ca.pem\"\n").await;
        assert!(said.len() == 1 && said[0].starts_with("line 1: endpoint.pay.ca: "), "{said:?}");
    }

    #[tokio::test]
    async fn names_are_not_resolved_and_allowed_addresses_pass() {
        for endpoint in [
            "url = \"https://no-such-name.invalid\"",
            "url = \"http://127.0.0.1:8080\"\nallow-private = true",
            "url = \"https://1.1.1.1\"",
            "url = \"postgres://10.0.0.1:5432/x\"\nallow-private = true",
            "url = \"mongodb://no-such-name.invalid/x\"",
            "account = \"b\"",
        ] {
            assert!(warned(&format!("[endpoint.pay]\n{endpoint}\n")).await.is_empty(), "{endpoint}");
        }
    }
}
