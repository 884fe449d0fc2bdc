//! Contracts of Oncegate tools: what a component may ever do, and the identity of each effect.
//!
//! Pure: no I/O, no clock, no random numbers, no wasm. Everything from guests, models and providers
//! is hostile here; every bound is a named constant in `limits`, and nothing panics.
//!
//! The life of one effect through this crate: [`Contract::parse`] reads the author's declaration;
//! [`resolve`] takes each field from its source; [`effect_key`], [`recipe`] and [`fingerprint`] give
//! it identity; [`render`] writes the request; [`classify`] judges the raw answer; and when that
//! says nothing, [`settle_fields`] and [`match_candidates`] find out by a lookup.
//!
//! # Syntax, where the key names alone do not tell
//!
//! - Places (`at`, `reference`, `dedupe-at`): `path:NAME` for the placeholder `{NAME}` of the request,
//!   `query:NAME`, `header:NAME`, `form:NAME`, `json:/POINTER` (objects on the way are made; arrays
//!   never), `part:NAME`, and `body` for a body of bytes.
//! - Sources (`from`): `context:FACT`, `argument:/POINTER`, `lookup:OPERATION` with
//!   `value = "/POINTER"`, `content:/POINTER`, `plan`, `const` with `value = …`; none is the guest's
//!   word. A pointer may have one `*`.
//! - Conditions: `{ status = 200 }`, `{ status = [200, 201] }`, `{ status = "2xx" }`, each optionally
//!   with `at = "/POINTER"` and one of `equals`, `in`, `exists`; `at` alone means that it exists, no
//!   `status` means 2xx. A list of conditions means any of them.
//! - Durations: `500ms`, `90s`, `5m`, `24h`, `30d`.
//! - A sequence: `repeat = "sequence"` with `scope = "trigger"` or `scope = "run"`; the first is 1.
//! - Amounts: `normalize = "money"` with `currency = "USD"` or `currency = "field:NAME"`. Whole
//!   numbers are minor units, text and decimals are major units.
//! - Databases: an endpoint's `url` may be `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE`,
//!   `sqlite:NAME` or `mongodb://HOST/DATABASE`. Its operations have `effect = "none"` and
//!   `request = "SQL ENDPOINT"` with `statement`, `"FIND ENDPOINT:COLLECTION"` with `filter`, `projection`,
//!   `sort` and `limit`, or `"AGGREGATE ENDPOINT:COLLECTION"` with `pipeline`, each as text. Values have
//!   places, `:name` in a statement and `":name"` in a filter, and fields `at = "bind:name"`. The answer
//!   is `{"rows": [{COLUMN: VALUE, …}], "truncated": false}` with status 200, also without rows: test
//!   `{ at = "/rows/0" }`. A truncated answer is not found.
//! - A field may say `optional = true`; generated fields always may be left out, key parts never.
//!
//! ```
//! let text = r#"
//! [component]
//! name = "orders"
//! effect = "none"
//! [endpoint.shop]
//! url = "https://shop.example"
//! [tool.read-order]
//! operations = ["get-order"]
//! [operation.get-order]
//! effect = "none"
//! request = "GET shop:/orders/{id}"
//! fields = [ { name = "id", at = "path:id", from = "argument:/order_id" } ]
//! "#;
//! let contract = oncegate_contract::Contract::parse("orders.toml", text)?;
//! assert_eq!(contract.operations["get-order"].method, "GET");
//! # Ok::<(), oncegate_contract::ContractErrors>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests stop at the first surprise")
)]

mod answer;
mod condition;
mod contract;
mod database;
mod decimal;
mod document;
mod error;
mod field;
mod fingerprint;
mod fits;
mod json;
mod key;
mod label;
pub mod limits;
mod lint;
mod normalize;
mod operation;
mod parse;
mod place;
mod pointer;
mod render;
mod resolve;
mod settle;
mod statement;
mod value;

pub use answer::{Answer, Verdict, classify, found, is_coded};
pub use condition::{Condition, Conditions, StatusMatch, Test};
pub use contract::{Component, Contract, Endpoint, Tool};
pub use database::{Database, DatabaseAddress, Query};
pub use decimal::is_above;
pub use document::{DocumentCommand, Documents, Node};
pub use error::{ContractError, ContractErrors, FieldError};
pub use field::{Currency, Field, Role, Rule, Source, ValueKind};
pub use fingerprint::{Fingerprint, fingerprint};
pub use fits::{Interface, fits};
pub use json::parse_json;
pub use key::{EffectKey, Owner, downstream_key, effect_key, former_keys, former_recipes, formers, recipe};
pub use label::{generated_digest, label, safe_text};
pub use lint::{Lint, lint};
pub use normalize::{Normalizer, normalize};
pub use operation::{
    BodyKind, Dedupe, DedupeScope, EffectClass, FormerRecipe, Operation, ProviderTerms, Revokes, SequenceScope, Settle,
};
pub use place::{PathPiece, PathTemplate, Place};
pub use pointer::{Pointer, Segment};
pub use render::{Request, bound_values, check_base_url, render};
pub use resolve::{Fetched, Resolved, ResolvedField, Sources, resolve, resolve_host};
pub use settle::{Matches, match_candidates, settle_fields};
pub use statement::Statement;
pub use value::Value;
