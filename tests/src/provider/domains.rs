//! What the provider sells: refunds, emails, notes, posts, datasets, and the orders that it only shows.
//!
//! Pure: a request and the time in, an answer out. Every effect is counted here and nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::{Reply, Request, value_of};
use super::mode::Mode;
use super::posts::Posts;

/// How the provider behaves when it works.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Repeats with one `Idempotency-Key`, per kind of effect: `none` ignores the key, `key`
    /// answers every repeat with the first answer, `key-and-body` only an identical one.
    pub dedupe: BTreeMap<String, Dedupe>,
    /// How long a key is remembered.
    pub dedupe_window_ms: u64,
    /// Kinds of which a second object with one identity (charge, recipient, thread and text) is
    /// swallowed: 200 `{"object":"duplicate"}`, no object, no count.
    pub swallow: Vec<String>,
    /// So long an object is not found in lists after it came to be.
    pub index_lag_ms: u64,
    /// Lists answer 503.
    pub lists_down: bool,
    /// A return reads `refunded` once its charge was refunded.
    pub shop_follows: bool,
    /// Waits so long before every answer.
    pub latency_ms: u64,
    /// A post's challenge is accepted for so long.
    pub challenge_ms: u64,
    /// A post's challenge asks for something else than it says, so that every answer is wrong.
    pub challenge_lies: bool,
    /// Every dataset gets the same identifier, as where a place has a name and not a number.
    pub dataset_by_name: bool,
}

impl Default for Settings {
    /// Emails, answers to challenges, datasets and their deletions are deduped on key and body for 24 h, all else is
    /// not; no lag, no latency.
    fn default() -> Self {
        Self {
            dedupe: ["email", "publication", "dataset", "deletion"]
                .map(|kind| (kind.to_owned(), Dedupe::KeyAndBody))
                .into(),
            dedupe_window_ms: 24 * 60 * 60 * 1000,
            swallow: Vec::new(),
            index_lag_ms: 0,
            lists_down: false,
            shop_follows: false,
            latency_ms: 0,
            challenge_ms: 5 * 60 * 1000,
            challenge_lies: false,
            dataset_by_name: false,
        }
    }
}

/// What a repeated `Idempotency-Key` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dedupe {
    /// Nothing.
    None,
    /// The first answer, whatever the body.
    Key,
    /// The first answer when the body is the same, else 409.
    KeyAndBody,
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Effect {
    /// One of [`KINDS`].
    pub kind: String,
    /// The provider's identifier.
    pub id: String,
    /// Milliseconds since the provider started.
    pub at_ms: u64,
    /// The object as lists show it.
    pub object: Value,
}

/// An answer that a repeated key gets again.
#[derive(Debug)]
struct Remembered {
    at_ms: u64,
    body: Vec<u8>,
    reply: Reply,
}

/// All that the provider knows.
#[derive(Debug, Default)]
pub struct World {
    /// How it behaves.
    pub settings: Settings,
    /// What happened, in order.
    pub effects: Vec<Effect>,
    /// How many effects were forgotten by resets: no identifier is given twice.
    pub forgotten: usize,
    /// Objects that a test gave it, by kind and identifier.
    seeds: BTreeMap<(String, String), Value>,
    /// Requests that met [`Mode::RefusedOnResend`], by path and body.
    refused_next: BTreeSet<(String, Vec<u8>)>,
    remembered: BTreeMap<(String, String), Remembered>,
    pub(super) posts: Posts,
}

/// Everything that is counted.
pub const KINDS: [&str; 7] = ["refund", "email", "note", "post", "publication", "dataset", "deletion"];

impl World {
    /// Takes objects from a test: `{"returns": [{"id": …}], "orders": […], "customers": […]}`.
    ///
    /// # Errors
    /// Something in it is not an object with an `id`; the text says what.
    pub fn seed(&mut self, seeds: &Value) -> Result<(), String> {
        let kinds = seeds.as_object().ok_or("seeds are an object of lists")?;
        for (kind, objects) in kinds {
            for object in objects.as_array().into_iter().flatten() {
                let id = object["id"].as_str().ok_or("a seed needs a text `id`")?;
                self.seeds.insert((kind.clone(), id.to_owned()), object.clone());
            }
        }
        Ok(())
    }

    /// What a mode means for this request, when that depends on earlier ones.
    pub fn met(&mut self, request: &Request, mode: Mode) -> Mode {
        if mode != Mode::RefusedOnResend {
            return mode;
        }
        let first = self.refused_next.insert((request.path.clone(), request.body.clone()));
        if first { Mode::CompleteThenReset } else { Mode::Reject402 }
    }

    /// Answers one request and counts what it made happen.
    pub fn handle(&mut self, request: &Request, now_ms: u64) -> Reply {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/refunds") => self.create("refund", request, now_ms),
            ("POST", "/v1/emails") => self.create("email", request, now_ms),
            ("POST", "/v1/notes") => self.create("note", request, now_ms),
            ("POST", "/v1/posts") => self.post(request, now_ms),
            ("POST", "/v1/answers") => self.once("publication", request, now_ms, Self::publish),
            ("POST", "/v1/datasets") => self.once("dataset", request, now_ms, Self::import),
            ("GET", "/v1/datasets") => self.list("dataset", "name", request, now_ms),
            ("DELETE", path) if path.starts_with("/v1/datasets/") => {
                self.once("deletion", request, now_ms, Self::delete)
            }
            ("GET", "/v1/refunds") => self.list("refund", "charge", request, now_ms),
            ("GET", "/v1/emails") => self.list("email", "to", request, now_ms),
            ("GET", "/v1/notes") => self.list("note", "thread", request, now_ms),
            ("GET" | "HEAD", "/v1/account") => Reply::json(200, &json!({ "id": "acct_test" })),
            ("GET" | "HEAD", path) if path.starts_with("/returns/") => self.one("returns", &request.last_segment()),
            ("GET" | "HEAD", path) if path.starts_with("/orders/") => self.one("orders", &request.last_segment()),
            ("GET" | "HEAD", path) if path.starts_with("/customers/") => self.one("customers", &request.last_segment()),
            _ => Reply::error(404, "no_such_path", "there is nothing at this path"),
        }
    }

    fn one(&self, kind: &str, id: &str) -> Reply {
        match self.find(kind, id) {
            Some(object) => Reply::json(200, &object),
            None => Reply::error(404, "not_found", "there is no object with this id"),
        }
    }

    /// A seeded object, else one of those that every provider has: `R-…`, `O-…`, `C-…` and digits.
    fn find(&self, kind: &str, id: &str) -> Option<Value> {
        let mut object = self.seeds.get(&(kind.to_owned(), id.to_owned())).cloned().or_else(|| standing(kind, id))?;
        let charge = object["charge"].as_str().unwrap_or_default();
        if kind == "returns" && self.settings.shop_follows && self.refunded(charge) {
            object["status"] = json!("refunded");
        }
        Some(object)
    }

    fn refunded(&self, charge: &str) -> bool {
        self.effects.iter().any(|effect| effect.kind == "refund" && effect.object["charge"] == charge)
    }

    fn list(&self, kind: &str, by: &str, request: &Request, now_ms: u64) -> Reply {
        if self.settings.lists_down {
            return Reply::error(503, "unavailable", "lists are down");
        }
        let query = request.query_pairs();
        let wanted = value_of(&query, by);
        let data: Vec<&Value> = self
            .effects
            .iter()
            .filter(|effect| effect.kind == kind && !self.is_deleted(effect))
            .filter(|effect| effect.at_ms + self.settings.index_lag_ms <= now_ms)
            .map(|effect| &effect.object)
            .filter(|object| wanted.is_none_or(|wanted| object[by] == wanted))
            .collect();
        Reply::json(200, &json!({ "object": "list", "data": data, "has_more": false }))
    }

    fn create(&mut self, kind: &'static str, request: &Request, now_ms: u64) -> Reply {
        self.once(kind, request, now_ms, |world, request, now_ms| match world.object(kind, request) {
            Ok(object) => world.make(kind, object, now_ms),
            Err(refusal) => refusal,
        })
    }

    /// Does what a request asks for, unless its key says that it was done.
    fn once(
        &mut self,
        kind: &str,
        request: &Request,
        now_ms: u64,
        work: impl FnOnce(&mut Self, &Request, u64) -> Reply,
    ) -> Reply {
        let key = request.header("idempotency-key").unwrap_or_default();
        let dedupe = match self.settings.dedupe.get(kind) {
            Some(dedupe) if !key.is_empty() => *dedupe,
            _ => Dedupe::None,
        };
        let slot = (kind.to_owned(), key.to_owned());
        if let Some(reply) = self.repeat(dedupe, &slot, request, now_ms) {
            return reply;
        }
        let reply = work(self, request, now_ms);
        if dedupe != Dedupe::None {
            let remembered = Remembered { at_ms: now_ms, body: request.body.clone(), reply: reply.clone() };
            self.remembered.insert(slot, remembered);
        }
        reply
    }

    fn repeat(&self, dedupe: Dedupe, slot: &(String, String), request: &Request, now_ms: u64) -> Option<Reply> {
        let first = self.remembered.get(slot)?;
        if dedupe == Dedupe::None || now_ms - first.at_ms > self.settings.dedupe_window_ms {
            return None;
        }
        if dedupe == Dedupe::KeyAndBody && first.body != request.body {
            let message = "this key was used with another body";
            return Some(Reply::error(409, "idempotency_key_reused", message));
        }
        let mut reply = first.reply.clone();
        let replayed = ("Idempotent-Replayed".to_owned(), "true".to_owned());
        reply.headers.push(replayed);
        Some(reply)
    }

    /// The object that a request asks for, without its identifier.
    fn object(&self, kind: &str, request: &Request) -> Result<Value, Reply> {
        if kind == "refund" {
            return self.refund(request);
        }
        let mut object: Value = serde_json::from_slice(&request.body)
            .map_err(|_| Reply::error(400, "bad_json", "the body is no JSON document"))?;
        let needed = if kind == "email" { ["to", "subject"] } else { ["thread", "text"] };
        for name in needed {
            if !object[name].is_string() {
                let message = format!("`{name}` has to be a text");
                return Err(Reply::error(400, "missing_field", &message));
            }
        }
        object["object"] = json!(kind);
        Ok(object)
    }

    fn refund(&self, request: &Request) -> Result<Value, Reply> {
        let form = request.form_pairs();
        let charge = value_of(&form, "charge").unwrap_or_default();
        let whole = self.charge_amount(charge).ok_or_else(|| {
            let message = "there is no charge with this id";
            Reply::error(400, "charge_not_found", message)
        })?;
        let amount = match value_of(&form, "amount").map(str::parse::<i64>) {
            None => whole,
            Some(Ok(amount)) if (1..=whole).contains(&amount) => amount,
            Some(_) => {
                let message = "the amount is more than the charge";
                return Err(Reply::error(400, "amount_too_large", message));
            }
        };
        let metadata: BTreeMap<&str, &str> = form
            .iter()
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("metadata[")?.strip_suffix(']')?;
                Some((name, value.as_str()))
            })
            .collect();
        Ok(json!({
            "object": "refund",
            "charge": charge,
            "amount": amount,
            "currency": "usd",
            "status": "succeeded",
            "metadata": metadata,
        }))
    }

    /// What a charge came to: that of the seeded return that names it, or of any `ch_` and digits.
    fn charge_amount(&self, charge: &str) -> Option<i64> {
        let seeded = self
            .seeds
            .iter()
            .find(|((kind, _), object)| kind == "returns" && object["charge"].as_str() == Some(charge));
        match seeded {
            Some((_, object)) => object["amount"].as_i64(),
            None => digits_after("ch_", charge).map(|_| STANDING_AMOUNT),
        }
    }

    fn make(&mut self, kind: &str, mut object: Value, now_ms: u64) -> Reply {
        if self.settings.swallow.iter().any(|known| known == kind) && self.is_there(kind, &object) {
            return Reply::json(200, &json!({ "object": "duplicate" }));
        }
        Reply::json(200, &self.record(kind, &mut object, now_ms))
    }

    /// Counts an effect, and gives its object an identifier unless it has one.
    pub(super) fn record(&mut self, kind: &str, object: &mut Value, now_ms: u64) -> Value {
        let made = self.forgotten + self.count(kind) + 1;
        let id = object["id"].as_str().map_or_else(|| format!("{}_{made:06}", &kind[..2]), str::to_owned);
        object["id"] = json!(id);
        self.effects.push(Effect { kind: kind.to_owned(), id, at_ms: now_ms, object: object.clone() });
        object.clone()
    }

    fn is_there(&self, kind: &str, object: &Value) -> bool {
        let identity: &[&str] = match kind {
            "refund" => &["charge"],
            "email" => &["to"],
            _ => &["thread", "text"],
        };
        self.effects
            .iter()
            .any(|effect| effect.kind == kind && identity.iter().all(|name| effect.object[name] == object[name]))
    }

    /// How many effects of a kind there were.
    pub fn count(&self, kind: &str) -> usize {
        self.effects.iter().filter(|effect| effect.kind == kind).count()
    }

    /// How many effects there were, by kind; every kind is named.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        KINDS.into_iter().map(|kind| (kind, self.count(kind))).collect()
    }
}

/// The amount of every charge that no test seeded, in minor units.
pub const STANDING_AMOUNT: i64 = 50_000;

fn digits_after<'a>(start: &str, id: &'a str) -> Option<&'a str> {
    let digits = id.strip_prefix(start)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(digits)
}

fn standing(kind: &str, id: &str) -> Option<Value> {
    match kind {
        "returns" => digits_after("R-", id).map(|digits| {
            json!({
                "id": id,
                "charge": format!("ch_{digits}"),
                "amount": STANDING_AMOUNT,
                "currency": "usd",
                "status": "received",
            })
        }),
        "orders" => digits_after("O-", id).map(|digits| {
            json!({
                "id": id,
                "customer": format!("C-{digits}"),
                "status": "shipped",
                "note": null,
                "lines": [
                    { "sku": "kettle", "quantity": 1, "price": 45_00 },
                    { "sku": "cup", "quantity": 4, "price": 5_00 },
                ],
            })
        }),
        "customers" => digits_after("C-", id).map(|digits| {
            json!({
                "id": id,
                "name": format!("Customer {digits}"),
                "email": format!("customer{digits}@example.com"),
                "tier": "gold",
            })
        }),
        _ => None,
    }
}
