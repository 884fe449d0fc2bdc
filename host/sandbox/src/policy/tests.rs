//! Policies: what parses, what each error names, and every way a decision can go.

use std::time::Duration;

use super::*;
use crate::describe::{digest_text, tests::refunds};

const FULL: &str = r#"
[[component]]
digest = "sha256:DIGEST"
tenants = ["acme"]
grant = ["create-refund"]
[endpoint.pay]
url = "https://eu.pay.example/v2"
account = "acme-eu"
egress = "direct"
allow-private = false
[credential.pay]
from = "env:PAY_KEY"
attach = "header:Authorization"
format = "Bearer {secret}"
[context]
trigger = ["meta", "header", "serve"]
[limits]
memory = "32MiB"
wall-time = "500ms"
effects = 100
response = 2048
"#;

const SAME_KEY_TWICE: &str = "[signer.x]\nkey = \"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"\n[signer.y]\nkey = [\"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"]";
const KEY_AND_REVOKED: &str = "[signer.x]\nkey = \"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"\nrevoked = \"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"";

fn described() -> Description {
    Description::read(&refunds()).unwrap_or_else(|error| panic!("{error}"))
}

/// The full policy for the described component, with one part changed.
fn policy(from: &str, to: &str) -> Policy {
    let text = with_digest(FULL).replace(from, to);
    Policy::parse("policy.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn with_digest(text: &str) -> String {
    text.replace("sha256:DIGEST", &described().digest_text())
}

fn decided(policy: &Policy, tenant: &str, operation: &str) -> Result<Grant, Denied> {
    let description = described();
    decide(policy, &description.contract, &description.digest, tenant, operation)
}

fn errors(text: &str) -> String {
    match Policy::parse("p.toml", text) {
        Ok(_) => panic!("it parses: {text}"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn a_grant_carries_all_that_sending_needs() {
    let policy = policy("", "");
    assert!(policy.warnings().is_empty());
    let grant = decided(&policy, "acme", "create-refund").unwrap();
    assert_eq!(grant.tenant, "acme");
    assert_eq!(grant.owner, "acme-refunds");
    assert_eq!(grant.url, "https://eu.pay.example/v2");
    assert_eq!(grant.account, "acme-eu");
    assert!(grant.egress_direct && !grant.allow_private);
    let credential = grant.credential.unwrap();
    assert_eq!(credential.source, CredentialSource::Env("PAY_KEY".into()));
    assert_eq!(credential.header(), Some("Authorization"));
    assert_eq!(credential.format, "Bearer {secret}");
    assert_eq!(grant.limits.memory_bytes_max, 32 << 20);
    assert_eq!(grant.limits.wall_time_max, Duration::from_millis(500));
    assert_eq!(grant.limits.effects_max, 100);
    assert_eq!(grant.limits.response_bytes_max, 2048);
    assert_eq!(grant.limits.lookups_max, Limits::default().lookups_max);
    let operation = &described().contract.operations["create-refund"];
    assert_eq!(account(&policy, operation).as_deref(), Some("acme-eu"));
}

#[test]
fn the_default_is_nothing() {
    let denied = decided(&Policy::default(), "acme", "create-refund").unwrap_err();
    assert!(denied.for_operator().contains("[[component]]"));
    let empty = Policy::parse("p.toml", "").unwrap();
    assert!(decided(&empty, "", "create-refund").is_err());
}

#[test]
fn each_missing_part_denies_and_only_the_operator_hears_why() {
    let cases = [
        ("create-refund\"]", "other\"]", "lists create-refund under `grant`"),
        ("tenants = [\"acme\"]", "tenants = [\"bolt\"]", "lists the tenant \"acme\""),
        ("[endpoint.pay]", "[endpoint.shop]", "no [endpoint.pay]"),
        ("account = \"acme-eu\"", "", "no `account`"),
        ("[credential.pay]", "[credential.bank]", "no [credential.pay]"),
        ("https://eu", "http://eu", "allow-private = true"),
    ];
    for (from, to, why) in cases {
        let denied = decided(&policy(from, to), "acme", "create-refund").unwrap_err();
        assert!(denied.for_operator().contains(why), "{denied}");
        let agent = denied.for_agent();
        assert_eq!(agent, "The operation create-refund is not permitted here.");
        assert_eq!(denied.context_missing(), None);
    }
    let other = policy(&described().digest_text(), &digest_text(&[7; 32]));
    let denied = decided(&other, "acme", "create-refund").unwrap_err();
    assert!(denied.for_operator().contains("is for sha256:"));
    let undeclared = decided(&policy("", ""), "acme", "drop table; ask root").unwrap_err();
    assert!(!undeclared.for_agent().contains("drop table"));
}

#[test]
fn a_tenant_is_never_guessed() {
    assert_eq!(decided(&policy("", ""), "", "create-refund").unwrap().tenant, "acme");
    assert!(decided(&policy("", ""), "bolt", "create-refund").is_err());
    let two = policy("[\"acme\"]", "[\"acme\", \"bolt\"]");
    let denied = decided(&two, "", "create-refund").unwrap_err();
    assert_eq!(denied.context_missing(), Some("tenant"));
    assert!(!denied.for_agent().contains("policy"));
    assert_eq!(decided(&two, "bolt", "create-refund").unwrap().tenant, "bolt");
    // Another component's tenant counts as well.
    let entry = format!(
        "[[component]]\ndigest = \"{}\"\ntenants = [\"bolt\"]\ngrant = []\n[endpoint.pay]",
        digest_text(&[7; 32])
    );
    let beside = policy("[endpoint.pay]", &entry);
    assert!(decided(&beside, "", "create-refund").is_err());
    assert!(decided(&beside, "acme", "create-refund").is_ok());
}

#[test]
fn a_secret_goes_only_where_digest_or_url_are_pinned() {
    let line = format!("digest = \"{}\"\n", described().digest_text());
    let any = policy(&line, "");
    assert!(any.warnings()[0].contains("every component"));
    assert!(decided(&any, "acme", "create-refund").is_ok());
    let text = with_digest(FULL).replace(&line, "").replace("url = \"https://eu.pay.example/v2\"\n", "");
    let loose = Policy::parse("p.toml", &text).unwrap();
    let denied = decided(&loose, "acme", "create-refund").unwrap_err();
    assert!(denied.for_operator().contains("names no digest"), "{denied}");
    // With the digest pinned the contract's URL is the one that was reviewed.
    let pinned = policy("url = \"https://eu.pay.example/v2\"\n", "");
    let grant = decided(&pinned, "acme", "create-refund").unwrap();
    assert_eq!(grant.url, "https://pay.example");
}

#[test]
fn errors_name_file_line_and_key() {
    let cases = [
        ("x = 1", "p.toml:1: x: unknown key; known here: component, signer, endpoint"),
        ("\n[limits]\nmemry = 1", "p.toml:3: limits.memry: unknown key"),
        ("[[component]]\ngrant = []", "p.toml:1: component.tenants: missing"),
        ("[[component]]\ntenants = []\ngrant = []\nname = 1", "p.toml:4: component.name: unknown key"),
        (
            "[[component]]\ndigest = \"sha256:12\"\ntenants = []\ngrant = []",
            "p.toml:2: component.digest: expected `sha256:`",
        ),
        ("[[component]]\ntenants = [\"*\"]\ngrant = []", "there are no wildcards"),
        ("component = 1", "p.toml:1: component: expected one or more [[component]] tables, got integer"),
        ("[endpoint.a]\nurl = \"ftp://x\"", "p.toml:2: endpoint.a.url: the URL is neither http nor https"),
        ("[endpoint.a]\nurl = \"https://u:p@x\"", "user or password"),
        ("[endpoint.a]\nurl = \"https://x/?a=1\"", "query or fragment"),
        ("[endpoint.a]\negress = \"both\"", "p.toml:2: endpoint.a.egress: expected \"direct\""),
        ("[endpoint.a]\nallow-private = \"yes\"", "expected true or false, got string"),
        ("[endpoint.a]\naccount = \"a b\"", "endpoint.a.account: expected a name"),
        ("[credential.a]\nattach = \"header:X\"", "p.toml:1: credential.a.from: missing"),
        ("[credential.a]\nfrom = \"vault:x\"\nattach = \"header:X\"", "p.toml:2: credential.a.from: expected \"env:"),
        ("[credential.a]\nfrom = \"file:x\"\nattach = \"header:X\"", "absolute path"),
        ("[credential.a]\nfrom = \"env:X\"\nattach = \"header:Host\"", "frames or routes"),
        ("[credential.a]\nfrom = \"env:X\"\nattach = \"cookie:X\"", "expected \"header:NAME\""),
        ("[credential.a]\nfrom = \"env:X\"\nattach = \"query:k\"", "not in this version"),
        ("[credential.a]\nfrom = \"env:X\"\nattach = \"header:k\"\nformat = \"x\"", "{secret} in it once"),
        ("[credential.a]\nfrom = \"keyring:x\"\nattach = \"header:X\"", "keyring:SERVICE/ACCOUNT"),
        ("[credential.a]\nfrom = \"keyring:kernel:/x\"\nattach = \"header:X\"", "keyring:SERVICE/ACCOUNT"),
        (
            "[[component]]\nsigner = \"x\"\ntenants = []\ngrant = []",
            "p.toml:2: component.signer: the policy has no [signer.x]",
        ),
        ("[[component]]\nlineage = \"a b\"\ntenants = []\ngrant = []", "p.toml:2: component.lineage: expected a name"),
        ("[signer.x]", "p.toml:1: signer.x.key: missing"),
        ("[signer.x]\nkey = \"RWQ\"", "p.toml:2: signer.x.key: expected a minisign public key"),
        (SAME_KEY_TWICE, "another signer has the key"),
        (KEY_AND_REVOKED, "p.toml:3: signer.x.revoked: the key"),
        ("[limits]\nmemory = \"1GiB\"", "256MiB"),
        ("[context]\ntrigger = [\"model\"]", "p.toml:2: context.trigger: expected a list of"),
        ("[context]\nsecret = [\"meta\"]", "unknown key; known here: tenant, trigger"),
        ("[limits]\nmemory = \"64MB\"", "p.toml:2: limits.memory: expected a size"),
        ("[limits]\nmemory = 0", "expected a size above 0"),
        ("[limits]\nwall-time = 30", "expected a duration"),
        ("[limits]\neffects = -1", "expected a whole number"),
        ("[limits]\nidle = \"99999999999999999999h\"", "expected a duration"),
        ("a = ", "p.toml:1: syntax:"),
        ("[limits]\neffects = 1\neffects = 2", "p.toml:3: syntax: duplicate key"),
    ];
    for (text, why) in cases {
        let errors = errors(text);
        assert!(errors.contains(why), "{text:?}: {errors}");
    }
    let all = errors("x = 1\ny = 2\n[limits]\nz = 3");
    assert_eq!(all.lines().count(), 3, "{all}");
}

#[test]
fn what_cannot_be_enforced_yet_is_refused() {
    let cases = [
        "[[component]]\nbounds = {}\ntenants = []\ngrant = []",
        "[[component]]\ntrust-docs = true\ntenants = []\ngrant = []",
        "[approvers]\nalice = \"x\"",
    ];
    for text in cases {
        let errors = errors(text);
        assert!(errors.contains("not in this version"), "{text}: {errors}");
    }
}

#[test]
fn the_replay_window_is_ninety_days_unless_the_policy_says_otherwise() {
    let day = Duration::from_secs(86_400);
    assert_eq!(Policy::default().retention.replay_window, 90 * day);
    let shorter = Policy::parse("p.toml", "[retention]\nreplay-window = \"7d\"").unwrap();
    assert_eq!(shorter.retention.replay_window, 7 * day);
    assert!(errors("[retention]\nreplay-window = 7").contains("a duration above 0"));
    assert!(errors("[retention]\nreplay-window = \"0s\"").contains("a duration above 0"));
    assert!(errors("[retention]\ndone = \"30d\"").contains("retention"));
}

const GATED: &str = r#"
[[approve]]
operation = "create-refund"
when = { field = "amount", above = 10_000 }
by = ["alice"]
[[exclusive]]
name = "compensation"
operations = ["create-refund", "store-credit"]
by = { create-refund = "return", store-credit = ["goods"] }
"#;

fn gated(from: &str, to: &str) -> Result<Grant, Denied> {
    let text = with_digest(FULL).replace("grant = [", "requires = [\"permit\"]\ngrant = [") + GATED;
    assert!(text.contains(from), "{from}");
    let policy = Policy::parse("p.toml", &text.replace(from, to)).unwrap_or_else(|errors| panic!("{errors}"));
    decided(&policy, "acme", "create-refund")
}

fn values(fields: &[(&str, oncegate_contract::Role, Option<&str>)]) -> oncegate_contract::Resolved {
    let fields = fields.iter().map(|(name, role, normal)| oncegate_contract::ResolvedField {
        name: (*name).to_owned(),
        role: *role,
        source: "guest".to_owned(),
        value: oncegate_contract::Value::Boolean(true),
        normal: normal.map(str::to_owned),
    });
    oncegate_contract::Resolved { fields: fields.collect(), fetches: Vec::new(), sequence: None }
}

#[test]
fn a_grant_says_what_it_waits_for() {
    let grant = gated("", "").unwrap();
    assert_eq!(grant.requires, Requires { plan: false, permit: true });
    assert_eq!(grant.approvals[0].to_string(), "when amount is above 10000, by alice");
    assert_eq!(
        (grant.exclusives[0].name.as_str(), &grant.exclusives[0].by[..]),
        ("compensation", &["return".to_owned()][..])
    );
    assert!(gated("by = [\"alice\"]", "").unwrap().approvals[0].is_met(&["anybody".into()]));
    let desk = gated("by = [\"alice\"]", "elicitation-from = [\"stdio\", \"token:desk\"]").unwrap().approvals.remove(0);
    let words = "when amount is above 10000, also on the word of a client through stdio or token:desk";
    assert_eq!(desk.to_string(), words);
    let met = |rule: &ApprovalRule, actor: String| rule.is_met(&[actor]);
    assert!(met(&desk, Door::stdio().actor("acme", "x")) && met(&desk, "anybody".into()));
    assert!(met(&desk, Door::token("desk").actor("acme", "x")));
    assert!(!met(&desk, Door::token("other").actor("acme", "x")));
    for rule in [gated("by = [\"alice\"]", ""), gated("", "")] {
        assert!(!met(&rule.unwrap().approvals[0], Door::stdio().actor("alice", "alice")));
    }
    for (from, to) in [("\"return\"", "\"reason\""), ("\"return\"", "\"no-such\"")] {
        let denied = gated(from, to).unwrap_err();
        assert!(denied.for_operator().contains("[[exclusive]] at line"), "{}", denied.for_operator());
    }
}

#[test]
fn taking_a_clients_word_is_warned_of() {
    let rule = "[[approve]]\noperation = \"create-refund\"\nelicitation-from = [\"token:desk\"]\n";
    let warnings = |rule: &str| Policy::parse("p.toml", &format!("{}{rule}", with_digest(FULL))).unwrap().warnings();
    assert_eq!(warnings("").len(), 0);
    let [warning] = &warnings(rule)[..] else { panic!("{:?}", warnings(rule)) };
    assert!(warning.contains("through token:desk") && warning.contains("approves its own calls"), "{warning}");
}

#[test]
fn an_entry_that_grants_more_loosens_no_requirement() {
    let text = with_digest(FULL);
    let any = "[[component]]\ntenants = [\"acme\"]\ngrant = [\"create-refund\"]\nrequires = [\"plan\"]\n";
    let policy = Policy::parse("p.toml", &format!("{any}{text}")).unwrap_or_else(|errors| panic!("{errors}"));
    let grant = decided(&policy, "acme", "create-refund").unwrap();
    assert_eq!((grant.line, grant.requires.plan), (6, true));
}

#[test]
fn what_is_no_number_is_above_every_bound() {
    use oncegate_contract::Role::{Bound, Generated, Key};
    let rule = &gated("", "").unwrap().approvals[0];
    for (role, normal, applies) in [
        (Bound, Some("10000"), false),
        (Key, Some("9999.99"), false),
        (Bound, Some("10000.01"), true),
        (Bound, Some("-20000"), false),
        (Bound, Some("9999 USD"), false),
        (Bound, Some("10001 USD"), true),
        (Bound, Some("many"), true),
        (Bound, Some(""), true),
        (Bound, None, true),
        (Generated, Some("1"), true),
    ] {
        assert_eq!(rule.applies(&values(&[("amount", role, normal)])), applies, "{role:?} {normal:?}");
    }
    assert!(rule.applies(&values(&[])));
}

#[test]
fn gates_that_cannot_be_meant_are_errors() {
    let cases = [
        ("[[approve]]\n", "approve.operation: missing"),
        ("[[approve]]\noperation = \"x\"\nwhen = { field = \"a\" }", "approve.when.above: expected a whole number"),
        ("[[approve]]\noperation = \"x\"\nwhen = { field = \"a\", above = 1.5 }", "approve.when.above: expected"),
        ("[[approve]]\noperation = \"x\"\nwhen = { field = \"a\", above = \"1e3\" }", "approve.when.above: expected"),
        ("[[approve]]\noperation = \"x\"\nwhen = { field = \"a\", over = 1 }", "approve.when.over: unknown key"),
        ("[[approve]]\noperation = \"x\"\nwhen = \"always\"", "approve.when: expected a table"),
        ("[[approve]]\noperation = \"x\"\nby = []", "approve.by: expected the names"),
        ("[[approve]]\noperation = \"x\"\nby = [\"elicitation:stdio\"]", "approve.by: an answer through a client"),
        (
            "[[approve]]\noperation = \"x\"\nby = [\"a\"]\nelicitation-from = [\"stdio\"]",
            "approve.elicitation-from: `by` names",
        ),
        ("[[approve]]\noperation = \"x\"\nelicitation-from = []", "approve.elicitation-from: expected a list"),
        ("[[approve]]\noperation = \"x\"\nelicitation-from = true", "approve.elicitation-from: expected a list"),
        ("[[approve]]\noperation = \"x\"\nelicitation-from = [\"http\"]", "approve.elicitation-from: expected a list"),
        ("[[exclusive]]\noperations = [\"a\"]\nby = [\"x\"]", "exclusive.name: missing"),
        ("[[exclusive]]\nname = \"n\"\nby = [\"x\"]", "exclusive.operations: missing"),
        ("[[exclusive]]\nname = \"n\"\noperations = [\"a\"]", "exclusive.by: expected fields"),
        ("[[exclusive]]\nname = \"n\"\noperations = [\"a\", \"b\"]\nby = { a = \"x\" }", "exclusive.by: expected"),
        (
            "[[exclusive]]\nname = \"n\"\noperations = [\"a\", \"b\"]\nby = { a = \"x\", b = [\"x\", \"y\"] }",
            "exclusive.by: expected",
        ),
        (
            "[[exclusive]]\nname = \"n\"\noperations = [\"a\"]\nby = { a = \"x\", c = \"y\" }",
            "exclusive.by.c: unknown key",
        ),
        ("[[component]]\nrequires = [\"luck\"]\ntenants = []\ngrant = []", "component.requires: expected a list"),
    ];
    for (text, why) in cases {
        let errors = errors(text);
        assert!(errors.contains(why), "{text:?}: {errors}");
    }
    let one = "[[exclusive]]\nname = \"n\"\noperations = [\"a\"]\nby = [\"x\"]\n";
    assert!(errors(&format!("{one}{one}")).contains("has this name"));
    let policy = Policy::parse("p.toml", one).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(policy.warnings()[0].contains("no [[component]] is granted"), "{:?}", policy.warnings());
}

#[test]
fn the_provider_may_say_which_account_it_is() {
    let text = "[endpoint.a]\naccount-is = { operation = \"whoami\", at = \"/id\" }";
    let policy = Policy::parse("policy.toml", text).unwrap();
    let asked = policy.endpoints["a"].account_is.as_ref().unwrap();
    assert_eq!((asked.operation.as_str(), asked.at.to_string().as_str()), ("whoami", "/id"));
    for wrong in
        ["{ at = \"/id\" }", "{ operation = \"whoami\" }", "{ operation = \"whoami\", at = \"id\" }", "\"whoami\""]
    {
        let errors = errors(&format!("[endpoint.a]\naccount-is = {wrong}"));
        assert!(errors.contains("endpoint.a.account-is"), "{wrong}: {errors}");
    }
}

#[test]
fn facts_are_set_by_whom_the_policy_says() {
    let rules = policy("", "").context;
    for setter in [Setter::Serve, Setter::Meta, Setter::Header] {
        assert!(rules.may_set("trigger", setter));
        assert_eq!(rules.may_set("tenant", setter), setter == Setter::Serve);
        assert!(!rules.may_set("colour", setter));
    }
}

#[test]
fn the_first_policy_grants_nothing_until_it_is_uncommented() {
    let description = described();
    let text = Policy::minimal(&description);
    let commented = Policy::parse("p.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    assert!(commented.components.is_empty());
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
    let plain: Vec<&str> = text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
    let policy = Policy::parse("p.toml", &plain.join("\n")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let grant = decided(&policy, "", "create-refund").unwrap();
    assert_eq!(grant.url, "https://pay.example");
    assert_eq!(grant.account, "main");
    assert_eq!(grant.credential.unwrap().source, CredentialSource::Env("PAY_KEY".into()));
    assert!(policy.warnings().is_empty());
}

#[test]
fn units() {
    assert_eq!(units::size("2GiB"), Some(2 << 30));
    assert_eq!(units::size("17"), Some(17));
    assert_eq!(units::size("-1"), None);
    assert_eq!(units::size("999999999999GiB"), None);
    assert_eq!(units::duration("24h"), Some(Duration::from_secs(86_400)));
    assert_eq!(units::duration("5"), None);
    assert_eq!(digest_of("sha256:"), None);
    assert_eq!(digest_of(&digest_text(&[0xab; 32])), Some([0xab; 32]));
}

#[test]
fn a_signers_component_brings_no_url_of_its_own() {
    use crate::signature::{PublicKey, Standing};
    let digest = described().digest;
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let line = format!("digest = \"{}\"", described().digest_text());
    let signer = format!("[signer.acme]\nkey = \"{key}\"\n[endpoint.pay]");
    let text = with_digest(FULL).replace(&line, "signer = \"acme\"").replace("[endpoint.pay]", &signer);
    let signed = Policy::parse("p.toml", &text).unwrap();
    let denied = decided(&signed, "acme", "create-refund").unwrap_err();
    assert!(denied.for_operator().contains("no signature of it was read here"), "{denied}");
    let standing = Standing::Verified { key: PublicKey::parse(key).unwrap(), comment: String::new() };
    signed.signatures.note(digest, standing.clone(), None);
    let grant = decided(&signed, "acme", "create-refund").unwrap();
    assert_eq!((grant.known_by.as_str(), grant.owner.as_str()), ("signer acme", "acme-refunds"));
    // Whoever has the signer's key could otherwise have the secret sent to himself.
    let loose = Policy::parse("p.toml", &text.replace("url = \"https://eu.pay.example/v2\"\n", "")).unwrap();
    loose.signatures.note(digest, standing, None);
    assert!(decided(&loose, "acme", "create-refund").unwrap_err().for_operator().contains("names no digest"));
}

#[test]
fn privacy_is_off_unless_it_is_asked_for() {
    let parsed = |text: &str| Policy::parse("p.toml", text).unwrap_or_else(|errors| panic!("{errors}")).privacy;
    assert_eq!(parsed(""), Privacy { encrypt: false, key_from: None });
    let on = parsed("[privacy]\nencrypt = true\nkey-from = \"env:MASTER\"\n");
    assert_eq!(on, Privacy { encrypt: true, key_from: Some(CredentialSource::Env("MASTER".into())) });
    for (text, wrong) in [
        ("[privacy]\nencrypt = \"yes\"\n", "privacy.encrypt"),
        ("[privacy]\nkey-from = \"MASTER\"\n", "privacy.key-from"),
        ("[privacy]\nkey-from = \"file:master\"\n", "absolute path"),
        ("[privacy]\nkeys = 1\n", "keys"),
    ] {
        let said = errors(text);
        assert!(said.contains(wrong), "{said}");
    }
}
