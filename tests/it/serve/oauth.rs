//! Access tokens of an OAuth server: who is let in, and for whom.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use oncegate_tests::harness::{Harness, Run};
use oncegate_tests::mcp::http::{NEWER, Server};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::{TOOL, http, is_replay, receipt, refunds};
use crate::agent::refund;

const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "https://tools.example/mcp";

struct Signer {
    key: EncodingKey,
    kid: &'static str,
}

impl Signer {
    fn new(kid: &'static str) -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        Self { key: EncodingKey::from_ec_der(pkcs8.as_ref()), kid }
    }

    fn public(&self) -> Value {
        let mut key = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        key.common.key_id = Some(self.kid.to_owned());
        serde_json::to_value(key).unwrap()
    }

    fn header(&self) -> Header {
        Header { kid: Some(self.kid.to_owned()), typ: Some("at+jwt".to_owned()), ..Header::new(Algorithm::ES256) }
    }

    fn sign(&self, claims: &Value) -> String {
        encode(&self.header(), claims, &self.key).unwrap()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "agent-7", "exp": now() + 600, "tenant": "acme" })
}

fn changed(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

struct Scene {
    harness: Harness,
    keys: PathBuf,
    signer: Signer,
}

impl Scene {
    fn new() -> Self {
        let harness = Harness::new("refunds").unwrap();
        let scene = Self { keys: harness.folder().join("keys.json"), harness, signer: Signer::new("k1") };
        scene.publish(&[scene.signer.public()]);
        scene
    }

    fn publish(&self, keys: &[Value]) {
        let new = self.keys.with_extension("new");
        fs::write(&new, json!({ "keys": keys }).to_string()).unwrap();
        fs::rename(new, &self.keys).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = http::command(&self.harness);
        command.args(["--public-url", AUDIENCE, "--authorization-server", ISSUER, "--keys"]).arg(&self.keys);
        command
    }
}

/// The status that a call with this token is answered with.
fn status(server: &Server, token: &str) -> (u16, String) {
    let client = server.client(token);
    let request = client.request(NEWER, "tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") }));
    client.send(&request).unwrap()
}

#[test]
fn a_token_for_this_server_is_let_in_as_its_tenant() {
    let scene = Scene::new();
    let server = Server::start(&mut scene.command()).unwrap();
    let call = |token: &str, words: &str| server.client(token).call(NEWER, TOOL, &refund("R-1", words)).unwrap();
    let first = receipt(&call(&scene.signer.sign(&claims()), "broken"));
    // Another token of the same tenant, for several audiences.
    let again = changed("aud", json!(["https://other.example", AUDIENCE]));
    is_replay(&call(&scene.signer.sign(&again), "in pieces"), &first);
    // A token of `oncegate token` goes on to work.
    is_replay(&call(&http::token(&scene.harness, "acme"), "gone"), &first);
    // Nothing is granted to another tenant, so it does not even hear of the tool.
    let (_, other) = status(&server, &scene.signer.sign(&changed("tenant", json!("globex"))));
    assert!(other.contains("there is no tool") && !other.contains(&first), "{other}");
    assert_eq!(refunds(&scene.harness), 1);
}

#[test]
fn a_token_that_is_not_for_this_server_is_nobodys() {
    let scene = Scene::new();
    let server = Server::start(&mut scene.command()).unwrap();
    let sign = |claims: Value| scene.signer.sign(&claims);
    let mut no_audience = claims();
    no_audience.as_object_mut().unwrap().remove("aud");
    let mut endless = claims();
    endless.as_object_mut().unwrap().remove("exp");
    let stranger = Signer::new("k1");
    let with = |header: Header| encode(&header, &claims(), &scene.signer.key).unwrap();
    let good = sign(claims());
    let (head, rest) = good.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let public = scene.signer.public().to_string();
    let secret = EncodingKey::from_secret(public.as_bytes()).unwrap();
    let refused = [
        ("another audience", sign(changed("aud", json!("https://tools.example")))),
        ("no audience", sign(no_audience)),
        ("another issuer", sign(changed("iss", json!("https://login.example.evil")))),
        ("expired", sign(changed("exp", json!(now() - 120)))),
        ("no end", sign(endless)),
        ("not yet", sign(changed("nbf", json!(now() + 600)))),
        ("no tenant", sign(changed("tenant", json!(null)))),
        ("a tenant of another alphabet", sign(changed("tenant", json!("acme\nglobex")))),
        ("another key of that name", stranger.sign(&claims())),
        ("an unknown key", Signer::new("k2").sign(&claims())),
        ("an ID token", with(Header { typ: Some("id+jwt".into()), ..scene.signer.header() })),
        ("critical extensions", with(Header { crit: Some(vec!["x".into()]), ..scene.signer.header() })),
        ("a shared secret", encode(&Header::new(Algorithm::HS256), &claims(), &secret).unwrap()),
        ("no signature", format!("{}.{body}.", "eyJhbGciOiJub25lIn0")),
        ("an empty signature", format!("{head}.{body}.")),
        ("a part missing", format!("{head}.{body}")),
        ("another body", format!("{head}.{}A.{signature}", &body[..body.len() - 1])),
        ("too long", format!("{good}{}", "A".repeat(20_000))),
        ("nothing", String::new()),
    ];
    for (what, token) in &refused {
        let (code, body) = status(&server, token);
        assert_eq!(code, 401, "{what}: {body}");
    }
    assert_eq!(refunds(&scene.harness), 0);
    assert_eq!(status(&server, &good).0, 200);
}

#[test]
fn keys_are_rotated_by_replacing_the_file() {
    let scene = Scene::new();
    let server = Server::start(&mut scene.command()).unwrap();
    let old = scene.signer.sign(&claims());
    assert_eq!(status(&server, &old).0, 200);
    let next = Signer::new("k2");
    scene.publish(&[scene.signer.public(), next.public()]);
    assert_eq!((status(&server, &old).0, status(&server, &next.sign(&claims())).0), (200, 200));
    scene.publish(&[next.public()]);
    assert_eq!((status(&server, &old).0, status(&server, &next.sign(&claims())).0), (401, 200));
    // A file that cannot be read lets nobody in.
    fs::write(&scene.keys, "{").unwrap();
    assert_eq!(status(&server, &next.sign(&claims())).0, 401);
}

#[test]
fn what_could_let_anybody_in_is_refused_at_the_start() {
    let scene = Scene::new();
    let starts = |command: &mut Command| {
        let run = Run::of(command).unwrap();
        assert!(run.code == Some(1) || run.code == Some(2), "{run:?}");
        run.stderr
    };
    fs::write(&scene.keys, json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0", "kid": "k1" }] }).to_string()).unwrap();
    let on = ["--http", "127.0.0.1:0"];
    assert!(starts(scene.command().args(on)).contains("shared secret"));
    scene.publish(&[]);
    assert!(starts(scene.command().args(on)).contains("no key to check signatures with"));
    let mut without = http::command(&scene.harness);
    without.arg("--keys").arg(&scene.keys).args(["--authorization-server", ISSUER]).args(on);
    assert!(starts(&mut without).contains("--public-url"));
}
