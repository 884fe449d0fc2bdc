//! The JSON Schema of `policy.toml`, for editors: every key, what it means, and no other.
//!
//! Draft 7, as the TOML servers of editors read it. A test asks the parser for its keys and compares.

use serde_json::{Map, Value, json};

use super::CONTEXT_FACTS;
use crate::limits::{LIMITS, Unit};

const DIGEST: &str = "^sha256:[0-9A-Fa-f]{64}$";
const NAME: &str = "^[A-Za-z0-9._:@+-]{1,200}$";
const SIZE: &str = "^[0-9]+ *(B|KiB|MiB|GiB)?$";
const DURATION: &str = "^[0-9]+ *(ms|s|m|h|d)$";
/// Of a provider, or of a database.
const URL: &str = "^((https?|postgres|mysql|mongodb)://[^?#@]+|sqlite:[^/?#@]+)$";
/// A minisign public key in base64: 42 bytes that begin with `Ed`.
const PUBLIC_KEY: &str = "^RW[A-Za-z0-9+/]{54}$";
const SOURCE: &str = "^(env:.+|file:/.+|command:.+|keyring:((kernel|secret-service):)?[^/]+/.+)$";

/// The schema of a policy.
#[must_use]
pub fn schema() -> Value {
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "policy.toml of Oncegate",
    });
    let root = closed(
        "What the operator grants. Nothing is granted that does not stand here.",
        &[],
        [
            ("component", list("Which components may do what for whom.", component())),
            ("signer", named("Whose signatures count, by a name that entries use.", signer())),
            ("endpoint", named("Where requests go, by the contract's name for each endpoint.", endpoint())),
            ("credential", named("Where secrets are, by the contract's name for each.", credential())),
            ("context", context()),
            ("limits", limits()),
            ("retention", retention()),
            ("privacy", privacy()),
            ("resolver", resolver()),
            ("approve", list("What a person approves before it is sent.", approve())),
            ("exclusive", list("Operations of which one happens for one purpose.", exclusive())),
        ],
    );
    if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
        schema.extend(root);
    }
    schema
}

/// A table with these keys and no others.
fn closed<const N: usize>(description: &str, required: &[&str], properties: [(&str, Value); N]) -> Value {
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut table = json!({
        "description": description, "type": "object", "additionalProperties": false, "properties": properties,
    });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

/// Tables that the author names.
fn named(description: &str, table: Value) -> Value {
    json!({ "description": description, "type": "object", "additionalProperties": table })
}

fn list(description: &str, item: Value) -> Value {
    json!({ "description": description, "type": "array", "items": item })
}

fn text(description: &str, pattern: &str) -> Value {
    json!({ "description": description, "type": "string", "pattern": pattern })
}

fn words(description: &str, words: &[&str]) -> Value {
    json!({ "description": description, "type": "array", "items": { "enum": words } })
}

fn names(description: &str) -> Value {
    json!({ "description": description, "type": "array", "items": { "type": "string", "pattern": NAME } })
}

fn flag(description: &str) -> Value {
    json!({ "description": description, "type": "boolean", "default": false })
}

fn component() -> Value {
    closed(
        "One grant: a component, by digest or signer or both, and what it may do for whom.",
        &["tenants", "grant"],
        [
            (
                "digest",
                text(
                    "The build that was reviewed, as `oncegate inspect` prints it. With `signer` both must hold; without either the entry is for every component.",
                    DIGEST,
                ),
            ),
            ("signer", text("The [signer.NAME] that has to have signed the component.", NAME)),
            (
                "lineage",
                text(
                    "The name that the effects are kept under in place of the contract's: the name of earlier effects, to go on with them. It is part of every key; never change it.",
                    NAME,
                ),
            ),
            ("tenants", names("For whom it acts.")),
            ("grant", names("Operations that are allowed; the contract declares no others.")),
            ("requires", words("What an effect has to name before it is sent.", &["plan", "permit"])),
            ("read-answers", flag("Whether callers of the tenants may read the providers' whole stored answers.")),
        ],
    )
}

fn signer() -> Value {
    let keys = |description: &str| {
        json!({
            "description": description,
            "anyOf": [
                { "type": "string", "pattern": PUBLIC_KEY },
                { "type": "array", "items": { "type": "string", "pattern": PUBLIC_KEY } },
            ],
        })
    };
    closed(
        "A publisher of components.",
        &[],
        [
            ("key", keys("Its minisign public key; a list while one replaces another.")),
            ("revoked", keys("Keys whose signatures count no more, whenever they were made.")),
        ],
    )
}

fn endpoint() -> Value {
    let asked = closed(
        "How the provider itself says which account this is.",
        &["operation", "at"],
        [
            ("operation", json!({ "description": "The contract's lookup, at the same endpoint.", "type": "string" })),
            (
                "at",
                json!({ "description": "Where its answer has the account's identifier: a JSON pointer.", "type": "string" }),
            ),
        ],
    );
    let mut table = closed(
        "What the operator says about an endpoint of contracts.",
        &[],
        [
            ("url", text("The URL that is used instead of the contract's.", URL)),
            (
                "account",
                text(
                    "Your name for the account at the provider. It is part of the key of every effect; never change it for the same account.",
                    NAME,
                ),
            ),
            (
                "egress",
                json!({
                    "description": "\"direct\" states that nothing between this host and the provider sends later what was not handed over.",
                    "enum": ["direct", "relayed"], "default": "relayed",
                }),
            ),
            (
                "allow-private",
                flag("Whether private, loopback and link-local addresses may be connected to, and plain http used."),
            ),
            ("account-is", asked),
            ("ca", text("A PEM file with the certificates that are trusted there in place of the public ones.", "^/")),
            ("proxy", text("The proxy that requests go through: http://HOST:PORT.", "^http://[^/?#@]+/?$")),
            ("proxy-credential", text("The [credential.NAME] that is shown to the proxy.", NAME)),
        ],
    );
    if let Some(properties) = table["properties"].as_object_mut() {
        properties.extend(database().map(|(name, schema)| (name.to_owned(), schema)));
    }
    table
}

/// The keys of an endpoint that is a database.
fn database() -> [(&'static str, Value); 10] {
    [
        ("user", text("Of a database: who logs in.", NAME)),
        ("role", text("Of a database: the role that is taken on after that.", NAME)),
        (
            "credential",
            text(
                "Of a database: the credential that has the password, where the contract's endpoint is not at hand.",
                NAME,
            ),
        ),
        ("file", text("Of a SQLite database: its file.", "^/")),
        (
            "tls",
            json!({ "description": "Of a database: \"off\" encrypts nothing, and goes only with `allow-private`.", "enum": ["required", "off"] }),
        ),
        (
            "rows",
            json!({ "description": "Of a database: rows of one answer.", "type": "integer", "minimum": 1, "maximum": 10_000 }),
        ),
        ("statement-timeout", text("Of a database: how long a statement may run.", DURATION)),
        (
            "role-checked",
            json!({ "description": "Of a document database: false where its server cannot say what the role may do.", "type": "boolean", "default": true }),
        ),
        (
            "read-concern",
            json!({ "description": "Of a document database: the read concern.", "enum": ["local", "available", "majority", "linearizable"] }),
        ),
        ("auth-database", text("Of a document database: where it knows the user from.", NAME)),
    ]
}

fn credential() -> Value {
    closed(
        "A secret: where it is and how it is sent.",
        &["from", "attach"],
        [
            (
                "from",
                text(
                    "env:VARIABLE, file:/path, command:program argument, or keyring:SERVICE/ACCOUNT (keyring:kernel:… and keyring:secret-service:… ask only one).",
                    SOURCE,
                ),
            ),
            (
                "attach",
                text(
                    "The request header that carries it, header:NAME; or password, for a database.",
                    "^(password|header:[A-Za-z0-9!#$%&'*+.^_`|~-]+)$",
                ),
            ),
            (
                "format",
                json!({
                    "description": "The header's value, with {secret} in it once.",
                    "type": "string", "default": "{secret}", "pattern": "\\{secret\\}",
                }),
            ),
        ],
    )
}

fn context() -> Value {
    let setters = |fact: &str| {
        words(&format!("Who may set the fact `{fact}`; without this only `serve` may."), &["serve", "meta", "header"])
    };
    let properties: Map<String, Value> = CONTEXT_FACTS.iter().map(|fact| ((*fact).to_owned(), setters(fact))).collect();
    json!({
        "description": "Who may set the facts of a call: \"serve\" (--context), \"meta\" (MCP), \"header\" (HTTP).",
        "type": "object", "additionalProperties": false, "properties": properties,
    })
}

/// Those of the table of limits that a policy may set.
fn limits() -> Value {
    let properties = LIMITS.iter().filter(|limit| limit.overridable()).map(|limit| {
        let what = format!("{} Beyond it: {}.", sentence(limit.reason), limit.over.word());
        let schema = match limit.unit {
            Unit::Bytes => {
                let values = [json!({ "type": "string", "pattern": SIZE }), json!({ "type": "integer", "minimum": 1 })];
                json!({ "description": what, "anyOf": values })
            }
            Unit::Time => text(&what, DURATION),
            Unit::Count => json!({ "description": what, "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        };
        (limit.name.to_owned(), schema)
    });
    json!({
        "description": "Limits of every call.",
        "type": "object", "additionalProperties": false, "properties": properties.collect::<Map<String, Value>>(),
    })
}

/// With a capital letter and a full stop.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("{}{}.", first.map(String::from).unwrap_or_default(), letters.as_str())
}

fn privacy() -> Value {
    closed(
        "What of the ledger is kept encrypted.",
        &[],
        [
            (
                "encrypt",
                flag("Whether labels, raw bytes and generated fields are encrypted under a key per parent object."),
            ),
            ("key-from", text("Where the key that protects those keys is, written as a credential's `from`.", SOURCE)),
        ],
    )
}

fn resolver() -> Value {
    let hosts = json!({
        "description": "Addresses of hosts that no name server is asked for.",
        "type": "object",
        "additionalProperties": { "type": "array", "minItems": 1, "items": { "type": "string" } },
    });
    closed(
        "How names of hosts become addresses.",
        &[],
        [
            (
                "server",
                json!({ "description": "The name server: an address, with :PORT if it is not 53.", "type": "string" }),
            ),
            ("hosts", hosts),
        ],
    )
}

fn retention() -> Value {
    closed(
        "How long history is kept at least.",
        &[],
        [("replay-window", text("For so long after its last change an effect is not pruned.", DURATION))],
    )
}

fn approve() -> Value {
    let above = json!({ "description": "Exact decimal text or a whole number; of money the minor units.", "type": ["integer", "string"] });
    let when = closed(
        "Only above a bound; without it always.",
        &["field", "above"],
        [("field", text("The operation's field.", NAME)), ("above", above)],
    );
    closed(
        "A person decides before the operation is sent.",
        &["operation"],
        [
            ("operation", text("The operation.", NAME)),
            ("when", when),
            (
                "by",
                json!({ "description": "Whose approval counts; without it anybody's who may write to the ledger.", "type": "array", "minItems": 1, "items": { "type": "string" } }),
            ),
            (
                "elicitation-from",
                json!({
                    "description": "Doors through which a client's answer counts: \"stdio\" and \"token:NAME\". It takes the client's word.",
                    "type": "array", "minItems": 1, "items": { "type": "string", "pattern": "^(stdio|token:[A-Za-z0-9._:@+-]{1,200})$" },
                }),
            ),
        ],
    )
}

fn exclusive() -> Value {
    let fields = json!({ "type": "array", "minItems": 1, "items": { "type": "string" } });
    let by = json!({
        "description": "Fields whose values identify the purpose: a list for all operations, or a table with a field or a list for each.",
        "anyOf": [fields, { "type": "object", "additionalProperties": { "anyOf": [{ "type": "string" }, fields] } }],
    });
    closed(
        "Operations for one real-world purpose, of which one happens.",
        &["name", "operations", "by"],
        [
            ("name", text("The name of the claim.", NAME)),
            (
                "operations",
                json!({ "description": "The operations that share the purpose.", "type": "array", "minItems": 1, "items": { "type": "string" } }),
            ),
            ("by", by),
        ],
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::policy::Policy;

    /// A key that no table has.
    const STRANGE: &str = "no-such-key";

    /// A document in which only this table stands, with the strange key in it.
    fn asking(path: &[(&str, Shape)]) -> String {
        let Some(((last, shape), outer)) = path.split_last() else { return format!("{STRANGE} = 1\n") };
        let head: Vec<&str> = outer.iter().flat_map(|(name, shape)| shape.head(name)).collect();
        let head: Vec<&str> = head.into_iter().chain(shape.head(last)).collect();
        let array = path.iter().any(|(_, shape)| *shape == Shape::List);
        if path.len() == 1 && array {
            return format!("[[{}]]\n{STRANGE} = 1\n", head.join("."));
        }
        if array {
            return format!("[[{}]]\n{} = {{ {STRANGE} = 1 }}\n", head[0], head[1..].join("."));
        }
        format!("[{}]\n{STRANGE} = 1\n", head.join("."))
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Shape {
        Table,
        Named,
        List,
    }

    impl Shape {
        fn head(self, name: &str) -> Vec<&str> {
            if self == Self::Named { vec![name, "some"] } else { vec![name] }
        }
    }

    /// The keys that the parser says it knows there.
    fn known_to_the_parser(document: &str) -> BTreeSet<String> {
        let errors = Policy::parse("p.toml", document).unwrap_err();
        let unknown = errors.errors().iter().find(|error| error.key.ends_with(STRANGE));
        let unknown = unknown.unwrap_or_else(|| panic!("nobody minds {STRANGE} in\n{document}\n{errors}"));
        let list = unknown.message.strip_prefix("unknown key; known here: ").unwrap();
        list.split(", ").map(str::to_owned).collect()
    }

    /// Compares this table and those in it; returns how many were compared.
    fn compare(schema: &Value, path: &mut Vec<(&'static str, Shape)>) -> usize {
        let properties = schema["properties"].as_object().unwrap();
        let here: BTreeSet<String> = properties.keys().cloned().collect();
        assert_eq!(known_to_the_parser(&asking(path)), here, "{schema:#}");
        assert_eq!(schema["additionalProperties"], false);
        let mut compared = 1;
        for (name, inner) in properties {
            assert!(inner["description"].as_str().is_some_and(|words| words.ends_with('.')), "{name} is not described");
            let inside =
                [(Shape::Table, inner), (Shape::Named, &inner["additionalProperties"]), (Shape::List, &inner["items"])];
            for (shape, table) in inside.into_iter().filter(|(_, table)| table["properties"].is_object()) {
                path.push((name.clone().leak(), shape));
                compared += compare(table, path);
                path.pop();
            }
        }
        compared
    }

    #[test]
    fn schema_and_parser_know_the_same_keys() {
        assert!(compare(&schema(), &mut Vec::new()) >= 12, "tables were passed over");
    }

    #[test]
    fn the_parser_takes_every_key_of_the_schema_and_no_other() {
        for (name, _) in schema()["properties"].as_object().unwrap() {
            let errors = Policy::parse("p.toml", &format!("{name} = 1\n")).unwrap_err();
            assert!(!errors.to_string().contains("unknown key"), "{errors}");
        }
        for (kind, strange) in
            [("endpoint", "urls"), ("credential", "form"), ("limits", "memor"), ("context", "tenants")]
        {
            let table = if matches!(kind, "limits" | "context") { format!("[{kind}]") } else { format!("[{kind}.x]") };
            let errors = Policy::parse("p.toml", &format!("{table}\n{strange} = 1\n")).unwrap_err();
            assert!(errors.to_string().contains("unknown key"), "{errors}");
        }
    }
}
