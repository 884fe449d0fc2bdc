//! Who calls, and what comes with the call beside its arguments.

use std::time::Duration;

use oncegate::strict::NEWER;
use oncegate_sandbox::ClientKey;
use oncegate_sandbox::outcome::{Code, Outcome};
use oncegate_sandbox::policy::{Door, Setter};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::Value;

use super::facts::{self, Facts};
use super::tokens::Identity;

/// MCP's `_meta` key for how soon the client wants an answer, in milliseconds.
const WITHIN_KEY: &str = "dev.oncegate/answer-within-ms";
/// The same as a header.
const WITHIN_HEADER: &str = "oncegate-answer-within-ms";
/// The header that carries facts.
const CONTEXT_HEADER: &str = "oncegate-context";
/// MCP's `_meta` key for the client's own idempotency key.
const KEY_KEY: &str = "dev.oncegate/idempotency-key";
/// The same as a header.
const KEY_HEADER: &str = "idempotency-key";
/// No client needs an answer sooner; an answer takes some commits.
const WITHIN_MIN: Duration = Duration::from_millis(100);

/// The caller of one request.
pub(super) struct Caller {
    /// What the command line and the token fix.
    pub(super) fixed: Facts,
    /// What the request says, by source.
    pub(super) given: Vec<(Setter, Facts)>,
    /// How soon it wants an answer.
    pub(super) within: Option<Duration>,
    /// The client's own key for this call: a cross-check, and part of no effect's identity.
    pub(super) key: Option<ClientKey>,
    /// The tenant that its token is for, over HTTP.
    pub(super) tenant: Option<String>,
    /// The way that it came in.
    pub(super) door: Door,
    /// Whether a closed stream means that nobody wants the answer any more.
    pub(super) cancels: bool,
}

impl Caller {
    /// Reads a request.
    ///
    /// # Errors
    /// The refusal that the caller is told: facts that cannot be read, or a token of somebody else.
    pub(super) fn of(context: &RequestContext<RoleServer>, serve: &Facts) -> Result<Self, Box<Outcome>> {
        let meta = &context.meta.0.0;
        let mut caller = Self {
            fixed: serve.clone(),
            given: vec![(Setter::Meta, facts::of_meta(meta.get(facts::META_KEY))?)],
            within: meta.get(WITHIN_KEY).and_then(Value::as_u64).map(Duration::from_millis),
            key: meta.get(KEY_KEY).map(key_of_meta).transpose()?,
            tenant: None,
            door: Door::stdio(),
            cancels: true,
        };
        if let Some(parts) = context.extensions.get::<http::request::Parts>() {
            caller.read_http(parts)?;
            // In the older revision a stream may close while its client goes on waiting.
            caller.cancels = is_newer(context);
        }
        caller.within = caller.within.map(|within| within.max(WITHIN_MIN));
        Ok(caller)
    }

    fn read_http(&mut self, parts: &http::request::Parts) -> Result<(), Box<Outcome>> {
        let headers = parts.headers.get_all(CONTEXT_HEADER).iter();
        let texts = headers.map(|value| value.to_str().map_err(|_| unreadable()));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        self.given.push((Setter::Header, facts::of_header(texts.into_iter())?));
        let within = parts.headers.get(WITHIN_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        self.within = within.map(Duration::from_millis).or(self.within);
        for said in parts.headers.get_all(KEY_HEADER) {
            let said = key_of_header(said)?;
            if self.key.replace(said.clone()).is_some_and(|before| before != said) {
                return Err(wrong_key("The client sent two different idempotency keys"));
            }
        }
        let Some(identity) = parts.extensions.get::<Identity>() else { return Ok(()) };
        self.door = Door::token(&identity.name);
        for (name, value) in identity.facts() {
            if name == "tenant" {
                self.tenant = Some(value.clone());
            }
            if self.fixed.insert(name.clone(), value.clone()).is_some_and(|before| before != value) {
                let message = format!("The token is for another {name} than this server; nothing was sent.");
                return Err(Box::new(Outcome::refused(Code::EffectNotPermitted, message)));
            }
        }
        Ok(())
    }
}

fn key_of_meta(value: &Value) -> Result<ClientKey, Box<Outcome>> {
    let text = value.as_str().ok_or_else(|| wrong_key(&format!("`{KEY_KEY}` in `_meta` is not a text")))?;
    ClientKey::parse(text).map_err(|why| wrong_key(&why))
}

/// With or without the quotes that a structured header has.
fn key_of_header(value: &http::HeaderValue) -> Result<ClientKey, Box<Outcome>> {
    let text = value.to_str().map_err(|_| wrong_key("`Idempotency-Key` is not plain text"))?.trim();
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    ClientKey::parse(inner.unwrap_or(text)).map_err(|why| wrong_key(&why))
}

fn wrong_key(why: &str) -> Box<Outcome> {
    Box::new(Outcome::refused(Code::InvalidArguments, format!("{why}; nothing was sent.")))
}

/// Whether the request is of the revision without sessions, or a later one.
pub(super) fn is_newer(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= NEWER)
}

fn unreadable() -> Box<Outcome> {
    Box::new(Outcome::refused(Code::InvalidArguments, "`Oncegate-Context` is not plain text; nothing was sent."))
}
