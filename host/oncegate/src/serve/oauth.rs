//! Access tokens that an OAuth server gave out for this one: signed JWTs (RFC 9068), held against the server's public
//! keys, its name, this server's own name as audience (RFC 8707) and the clock.
//!
//! The keys come from a file and not from the network: what this host connects to is the policy's to say. The file is
//! read again when it changes, so that keys are rotated by replacing it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::stamp::{Stamp, stamp};
use super::tokens::Identity;
use crate::home::{now_ms, read_text};

/// Bytes of a key set: some hundred keys.
const KEYS_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a token; more than this does not fit in the headers of most servers.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Seconds by which the clocks of the two servers may differ.
const LEEWAY_S: f64 = 60.0;
/// Signatures that only the server can make. A shared secret is none of them: who can check it can sign.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// The kinds of token that may come; an ID token or a logout token says that it is one.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// What the operator says of such tokens.
#[derive(Clone)]
pub(super) struct Options {
    /// The file with the server's public keys, a JWK set (RFC 7517).
    pub(super) keys: PathBuf,
    /// The claim that names the tenant.
    pub(super) tenant_claim: String,
    /// The claim that names the permit, if tokens are bound to one.
    pub(super) permit_claim: Option<String>,
}

/// Who gives out the tokens, for whom, and how they are checked.
pub(super) struct Issued {
    options: Options,
    issuers: Vec<String>,
    audience: String,
    read: Mutex<Option<(Stamp, Arc<JwkSet>)>>,
}

impl Issued {
    /// Reads the keys once, so that a wrong file is told at the start.
    ///
    /// # Errors
    /// The file cannot be read, or holds no public key.
    pub(super) fn new(options: Options, issuers: Vec<String>, audience: String) -> anyhow::Result<Self> {
        read_keys(&options.keys)?;
        Ok(Self { options, issuers, audience, read: Mutex::default() })
    }

    /// Whom the token stands for, or why it is nobody's.
    pub(super) fn identify(&self, token: &str) -> Result<Identity, String> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err("it is longer than is read here".to_owned());
        }
        let header = decode_header(token).map_err(|error| error.to_string())?;
        check_header(&header)?;
        let keys = self.keys().map_err(|error| format!("{error:#}"))?;
        let key = find(&keys, &header)?;
        let key = DecodingKey::from_jwk(key).map_err(|error| error.to_string())?;
        let claims = decode::<Map<String, Value>>(token, &key, &self.validation(header.alg));
        let claims = claims.map_err(|error| error.to_string())?.claims;
        check_time(&claims, now_ms())?;
        let permit = self.options.permit_claim.as_deref().map(|claim| named(&claims, claim)).transpose()?;
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        Ok(Identity::issued(subject, named(&claims, &self.options.tenant_claim)?, permit))
    }

    /// All but the times, which are held against this host's own clock.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&self.issuers);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_exp = false;
        validation
    }

    /// The keys as the file has them now. A file that cannot be read lets nobody in.
    fn keys(&self) -> anyhow::Result<Arc<JwkSet>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.options.keys);
        if let Some((stamp, keys)) = &*read
            && Some(*stamp) == now
        {
            return Ok(Arc::clone(keys));
        }
        let keys = Arc::new(read_keys(&self.options.keys)?);
        *read = now.map(|stamp| (stamp, Arc::clone(&keys)));
        Ok(keys)
    }
}

fn read_keys(file: &Path) -> anyhow::Result<JwkSet> {
    let text = read_text(file, "the keys in", KEYS_BYTES_MAX)?;
    let keys: JwkSet =
        serde_json::from_str(&text).with_context(|| format!("{} holds no JWK set (RFC 7517)", file.display()))?;
    let public = |key: &Jwk| !matches!(key.algorithm, AlgorithmParameters::OctetKey(_));
    if !keys.keys.iter().all(public) {
        bail!("{} holds a shared secret; whoever can check such a token can make one", file.display());
    }
    if !keys.keys.iter().any(is_for_signatures) {
        bail!("{} holds no key to check signatures with", file.display());
    }
    Ok(keys)
}

fn is_for_signatures(key: &Jwk) -> bool {
    let known = !matches!(key.algorithm, AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_));
    known && key.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature)
}

fn check_header(header: &Header) -> Result<(), String> {
    if !ALGORITHMS.contains(&header.alg) {
        return Err(format!("its signature is of a kind that is not taken here, {:?}", header.alg));
    }
    // RFC 7515 §4.1.11: what it calls critical must be understood.
    if header.crit.is_some() {
        return Err("it asks for extensions".to_owned());
    }
    let kind = header.typ.as_deref().unwrap_or("jwt").to_ascii_lowercase();
    if TYPES.contains(&kind.as_str()) { Ok(()) } else { Err("it is no access token".to_owned()) }
}

/// The key that the token names, or the only one there is.
fn find<'a>(keys: &'a JwkSet, header: &Header) -> Result<&'a Jwk, String> {
    let named = |key: &&Jwk| header.kid.is_none() || key.common.key_id == header.kid;
    let mut fitting = keys.keys.iter().filter(|key| is_for_signatures(key)).filter(named);
    let Some(key) = fitting.next() else { return Err("the key that it names is not known".to_owned()) };
    if header.kid.is_none() && fitting.next().is_some() {
        return Err("it does not say which key it was signed with".to_owned());
    }
    let stated = key.common.key_algorithm.as_ref().map(ToString::to_string);
    match stated {
        Some(stated) if stated != format!("{:?}", header.alg) => Err(format!("its key is for {stated}")),
        _ => Ok(key),
    }
}

fn check_time(claims: &Map<String, Value>, now_ms: u64) -> Result<(), String> {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of some centuries are exact")]
    let now = now_ms as f64 / 1_000.0;
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("its {name} is no time")),
    };
    match time("exp")? {
        Some(end) if now < end + LEEWAY_S => {}
        _ => return Err("it has expired".to_owned()),
    }
    match time("nbf")? {
        Some(begin) if now < begin - LEEWAY_S => Err("it is not valid yet".to_owned()),
        _ => Ok(()),
    }
}

/// A claim that is the name of something here.
fn named(claims: &Map<String, Value>, claim: &str) -> Result<String, String> {
    match claims.get(claim).and_then(Value::as_str) {
        Some(name) if !name.is_empty() && oncegate_contract::safe_text(name) == name => Ok(name.to_owned()),
        _ => Err(format!("its claim {claim} is no name of letters, digits and . _ : @ + -")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_token_has_an_end_and_may_have_a_beginning() {
        let at = |value| check_time(&claims(value), 1_000_000).is_ok();
        assert!(
            at(json!({ "exp": 1_000 })) && at(json!({ "exp": 941 })) && at(json!({ "exp": 1_000.5, "nbf": 1_060 }))
        );
        for wrong in [json!({}), json!({ "exp": 939 }), json!({ "exp": "2000" }), json!({ "exp": 2_000, "nbf": 1_061 })]
        {
            assert!(!at(wrong.clone()), "{wrong}");
        }
    }

    #[test]
    fn a_tenant_is_a_name() {
        let found = |value| named(&claims(value), "tenant").ok();
        assert_eq!(found(json!({ "tenant": "acme" })).as_deref(), Some("acme"));
        for wrong in [json!({}), json!({ "tenant": "" }), json!({ "tenant": ["acme"] }), json!({ "tenant": "a\nb" })] {
            assert_eq!(found(wrong.clone()), None, "{wrong}");
        }
    }
}
