//! The context of a call: who may say what. Arguments never can.
//!
//! A fact that `serve --context` or the caller's token fixes is fixed: whoever says otherwise is refused,
//! and so is a fact that the policy does not let its source give. Nothing is dropped in silence, because
//! a fact that was dropped could be part of a key.

use std::collections::BTreeMap;

use oncegate_sandbox::outcome::{Code, Outcome};
use oncegate_sandbox::policy::{CONTEXT_FACTS, ContextRules, Setter};
use serde_json::Value;

/// MCP's `_meta` key that carries facts: an object of names and texts.
pub const META_KEY: &str = "dev.oncegate/context";

/// Facts by name.
pub type Facts = BTreeMap<String, String>;

/// Reads the facts in `_meta`.
pub fn of_meta(value: Option<&Value>) -> Result<Facts, Box<Outcome>> {
    let Some(value) = value else { return Ok(Facts::new()) };
    let wrong = || refused(Code::InvalidArguments, format!("`{META_KEY}` in `_meta` is not an object of texts"));
    let members = value.as_object().ok_or_else(wrong)?;
    let facts = members.iter().map(|(name, value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        // An ordinal is a number to most.
        Value::Number(number) if number.is_u64() => Ok((name.clone(), number.to_string())),
        _ => Err(wrong()),
    });
    facts.collect()
}

/// Reads the facts of a header: `name=value`, several separated by commas, values percent-encoded.
pub fn of_header<'a>(values: impl Iterator<Item = &'a str>) -> Result<Facts, Box<Outcome>> {
    let mut facts = Facts::new();
    for pair in values.flat_map(|value| value.split(',')).map(str::trim).filter(|pair| !pair.is_empty()) {
        let wrong = || refused(Code::InvalidArguments, "`Oncegate-Context` is not a list of name=value".to_owned());
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let value = percent_encoding::percent_decode_str(value).decode_utf8().map_err(|_| wrong())?;
        if facts.insert(name.to_owned(), value.into_owned()).is_some() {
            return Err(wrong());
        }
    }
    Ok(facts)
}

/// Joins what is fixed and what was given.
pub fn join(rules: &ContextRules, fixed: &Facts, given: &[(Setter, Facts)]) -> Result<Facts, Box<Outcome>> {
    let mut facts = fixed.clone();
    for (setter, said) in given {
        for (name, value) in said {
            if !CONTEXT_FACTS.contains(&name.as_str()) {
                let name = oncegate_contract::safe_text(name);
                return Err(refused(Code::InvalidArguments, format!("There is no fact {name} of a context")));
            }
            if !rules.may_set(name, *setter) {
                let place = place(*setter);
                return Err(refused(
                    Code::EffectNotPermitted,
                    format!("The fact {name} is not taken from {place} here"),
                ));
            }
            if facts.insert(name.clone(), value.clone()).is_some_and(|before| before != *value) {
                let text = format!("The fact {name} is said to be two different things");
                return Err(refused(Code::EffectNotPermitted, text));
            }
        }
    }
    Ok(facts)
}

/// Whether facts that were joined under an earlier policy may be given still, by whichever request gave them.
///
/// # Errors
/// The refusal that the caller is told.
pub fn stand(rules: &ContextRules, fixed: &Facts, facts: &Facts) -> Result<(), Box<Outcome>> {
    for (name, value) in facts {
        let stands = match fixed.get(name) {
            Some(fixed) => fixed == value,
            None => [Setter::Meta, Setter::Header].into_iter().any(|setter| rules.may_set(name, setter)),
        };
        if !stands {
            return Err(refused(Code::EffectNotPermitted, format!("The fact {name} is not taken from a request here")));
        }
    }
    Ok(())
}

fn place(setter: Setter) -> &'static str {
    match setter {
        Setter::Serve => "the command line",
        Setter::Meta => "`_meta`",
        Setter::Header => "a header",
    }
}

fn refused(code: Code, message: String) -> Box<Outcome> {
    Box::new(Outcome::refused(code, format!("{message}; nothing was sent.")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncegate_sandbox::policy::Policy;
    use serde_json::json;

    fn facts(of: &[(&str, &str)]) -> Facts {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn nobody_overrules_what_is_fixed_and_nothing_is_dropped() {
        let text = "[context]\ntrigger = [\"meta\"]\ntenant = [\"meta\", \"serve\"]\n";
        let rules = Policy::parse("policy.toml", text).unwrap().context;
        let fixed = facts(&[("tenant", "acme")]);
        let said = |of: &[(&str, &str)]| join(&rules, &fixed, &[(Setter::Meta, facts(of))]);
        assert_eq!(said(&[("trigger", "T-1")]).unwrap(), facts(&[("tenant", "acme"), ("trigger", "T-1")]));
        assert_eq!(said(&[("tenant", "acme")]).unwrap(), fixed);
        for (wrong, code) in [
            (("tenant", "other"), Code::EffectNotPermitted),
            (("run", "r"), Code::EffectNotPermitted),
            (("colour", "red"), Code::InvalidArguments),
        ] {
            assert_eq!(said(&[wrong]).unwrap_err().code, Some(code), "{wrong:?}");
        }
    }

    #[test]
    fn what_was_joined_stands_while_a_request_may_say_it() {
        let rules = |text: &str| Policy::parse("policy.toml", &format!("[context]\n{text}\n")).unwrap().context;
        let (fixed, said) = (facts(&[("tenant", "acme")]), facts(&[("tenant", "acme"), ("trigger", "T-1")]));
        assert!(stand(&rules("trigger = [\"header\"]"), &fixed, &said).is_ok());
        let refused = stand(&rules("trigger = [\"serve\"]"), &fixed, &said).unwrap_err();
        assert_eq!(refused.code, Some(Code::EffectNotPermitted));
        assert!(stand(&rules("trigger = [\"meta\"]"), &facts(&[("tenant", "other")]), &said).is_err());
    }

    #[test]
    fn facts_are_texts() {
        assert_eq!(of_meta(Some(&json!({ "sequence": 2 }))).unwrap(), facts(&[("sequence", "2")]));
        assert!(of_meta(Some(&json!("tenant=a"))).is_err());
        assert!(of_meta(Some(&json!({ "tenant": ["a"] }))).is_err());
        let header = of_header(["trigger=a%2Cb, run=r1"].into_iter()).unwrap();
        assert_eq!(header, facts(&[("run", "r1"), ("trigger", "a,b")]));
        assert!(of_header(["run=1,run=2"].into_iter()).is_err());
        assert!(of_header(["run"].into_iter()).is_err());
    }
}
