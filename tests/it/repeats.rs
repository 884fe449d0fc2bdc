//! A call that is the same in every word is told the same without its guest, as long as nothing has changed: each
//! time beside the same call under a new memory, which runs the guest.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use oncegate_ledger::{Append, Effects, Event, Expect, Ledger, StateTag, Stored, StreamId, StreamKind};
use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{CallRequest, ClientKey, Loaded, Options, Sandbox};
use oncegate_tests::harness::root;
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::many::now;

struct World {
    sandbox: Sandbox,
    component: Arc<Loaded>,
    policy: String,
    posted: Arc<AtomicUsize>,
    _folder: TempDir,
}

/// Answers every request with another object.
fn provider() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, posted) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&posted);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = Vec::new();
            let mut part = [0; 4096];
            while !asked.ends_with(b"}") {
                let read = stream.read(&mut part).unwrap();
                if read == 0 {
                    break;
                }
                asked.extend_from_slice(&part[..read]);
            }
            let body = format!("{{\"id\":\"fx_{}\",\"object\":\"effect\"}}", count.fetch_add(1, Ordering::SeqCst));
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, posted)
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = root().join("target/guests/posting.wasm");
        let digest = Sha256::digest(std::fs::read(&file).expect("run `cargo xtask guests`"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let (url, posted) = provider();
        std::fs::write(folder.path().join("secret"), "sk_test_0123456789").unwrap();
        let policy = format!(
            "[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"acme\"]\ngrant = [\"get-item\", \"create-posting\"]\n\
             [endpoint.pay]\nurl = \"{url}\"\naccount = \"test\"\negress = \"direct\"\nallow-private = true\n\
             [credential.pay]\nfrom = \"file:{}\"\nattach = \"header:Authorization\"\nformat = \"Bearer {{secret}}\"\n",
            folder.path().join("secret").display()
        );
        let ledger = oncegate_ledger::init(&format!("redb:{}", folder.path().join("l.redb").display())).await.unwrap();
        let parsed = Policy::parse("policy.toml", &policy).unwrap();
        let cache = folder.path().join("cache");
        let options = Options { policy: parsed, ledger: Ok(ledger), cache, clock: Arc::new(now) };
        let sandbox = Sandbox::new(options).unwrap();
        let component = sandbox.load(&file).unwrap();
        Self { sandbox, component, policy, posted, _folder: folder }
    }

    fn request(id: &str, facts: &[(&str, &str)]) -> CallRequest {
        let context: BTreeMap<String, String> =
            facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let arguments = json!({ "id": id, "amount": 5, "memo": "a memo" });
        CallRequest { tool: "post".to_owned(), arguments, context }
    }

    async fn call(&self, id: &str) -> Outcome {
        Box::pin(self.sandbox.call(&self.component, Self::request(id, &[]))).await
    }

    /// The same call where nothing is remembered: the guest is run.
    async fn slowly(&self, id: &str) -> Outcome {
        let anew = self.sandbox.under(Policy::parse("policy.toml", &self.policy).unwrap());
        Box::pin(anew.call(&self.component, Self::request(id, &[]))).await
    }

    async fn without_the_guest(&self, id: &str) -> Option<Outcome> {
        self.sandbox.ready(&self.component, Self::request(id, &[])).await.ok().unwrap().told_before().await
    }

    /// A call that is remembered; its effect.
    async fn remembered(&self, id: &str) -> [u8; 32] {
        assert_eq!(self.call(id).await.status, Status::Done);
        assert_eq!(self.without_the_guest(id).await, None, "the first time was another answer");
        let told = self.call(id).await;
        assert_eq!(told.status, Status::AlreadyDone);
        // What came of the first call may be on its way to the ledger still: until it is there, the guest is run.
        while self.without_the_guest(id).await.is_none() {
            assert_eq!(self.call(id).await, told);
        }
        assert_eq!(self.without_the_guest(id).await, Some(told.clone()));
        assert_eq!(self.slowly(id).await, told);
        self.key_of(&told).await
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        self.sandbox.ledger().unwrap()
    }

    async fn key_of(&self, told: &Outcome) -> [u8; 32] {
        let effects = Effects::new(self.ledger());
        for id in effects.ledger.list(StateTag::Done, None, 100).await.unwrap() {
            let row = effects.get(id.id).await.unwrap().unwrap();
            if row.receipt == told.effects[0].receipt {
                return id.id;
            }
        }
        panic!("no row has the receipt");
    }

    /// What the changed row says is what both ways say.
    async fn is_told_anew(&self, id: &str) -> Outcome {
        assert_eq!(self.without_the_guest(id).await, None, "{id}");
        let slowly = self.slowly(id).await;
        assert_eq!(self.call(id).await, slowly, "{id}");
        // Where that is remembered again, it is the same again.
        if let Some(told) = self.without_the_guest(id).await {
            assert_eq!(told, slowly, "{id}");
        }
        slowly
    }
}

fn by_ada() -> (String, String) {
    ("ada".to_owned(), "it was looked at".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_the_row_is_told() {
    let world = World::new().await;
    let effects = Effects::new(world.ledger());
    let (actor, reason) = by_ada();
    let later =
        Event::FailedLater { at: 9, why: "taken back".into(), evidence: Stored::empty(), actor: None, decision: None };
    let diverged = Event::Diverged { at: 9, why: "another".into(), evidence: Stored::empty() };
    let decision = None;
    let superseded = Event::Superseded { actor, reason, epoch: 1, for_whom: "run:night".into(), at: 9, decision };
    for (id, event, status) in [
        ("later", later, Status::AlreadyDone),
        ("frozen", diverged, Status::Pending),
        ("superseded", superseded, Status::AlreadyDone),
    ] {
        let key = world.remembered(id).await;
        let row = effects.get(key).await.unwrap();
        effects.advance(key, row.as_ref(), event, Vec::new()).await.unwrap();
        assert_eq!(world.is_told_anew(id).await.status, status, "{id}");
    }
    let key = world.remembered("pruned").await;
    let row = effects.get(key).await.unwrap().unwrap();
    effects.bury(&[(key, row)], now()).await.unwrap();
    assert_eq!(world.is_told_anew("pruned").await.status, Status::AlreadyDone);
    effects.ledger.forget(vec![StreamId::effect(key)]).await.unwrap();
    assert_eq!(world.slowly("pruned").await, world.call("pruned").await);
    assert_eq!(world.posted.load(Ordering::SeqCst), 4, "nothing was sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_around_the_row_is_told() {
    let world = World::new().await;
    world.remembered("a").await;
    let bound = world.ledger().scan(0, 100).await.unwrap();
    let recipe = bound.iter().find(|record| matches!(record.event, Event::RecipeBound { .. })).unwrap();
    let event = Event::RecipeBound { recipe: [9; 32], contract: [9; 32] };
    world.ledger().append(vec![Append::new(recipe.stream, Expect::Any, event)]).await.unwrap();
    assert_eq!(world.is_told_anew("a").await.status, Status::Refused);
    assert!(bound.iter().any(|record| record.stream.kind == StreamKind::Account));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_call_is_told_by_itself() {
    let world = World::new().await;
    world.remembered("a").await;
    for facts in [[("run", "1")], [("permit", "p")], [("parent", "c")], [("trigger", "t")]] {
        let ready = world.sandbox.ready(&world.component, World::request("a", &facts)).await.ok().unwrap();
        assert_eq!(ready.told_before().await, None, "{facts:?}");
    }
    assert_eq!(world.without_the_guest("b").await, None);
    // A client's key is looked at in the ledger, and written down there.
    let key = ClientKey::parse("client-1").unwrap();
    let ready = world.sandbox.ready(&world.component, World::request("a", &[])).await.ok().unwrap();
    assert_eq!(ready.with_client_key(Some(&key)).told_before().await, None);
    world.sandbox.close();
    assert_eq!(world.without_the_guest("a").await, None, "a host that ends");
}
