//! Attacks on the way between the host and its providers. Each is a small file under `tests/cases/hostile`, played
//! by raw sockets to the built program; judged by what those sockets saw and counted.

mod answers;
mod cases;
mod certificates;
mod headers;
mod paths;
mod proxies;
mod redirects;
mod resolver;
mod secrets;
mod urls;
mod villain;
mod wire;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Guest, Harness, Options};
use oncegate_tests::mcp::http::{Client, OLDER, Server};
use serde_json::{Value, json};

use villain::Villain;

/// What the policy's credentials are; no other text here looks like them.
const SHOP_SECRET: &str = "sk_shop/4+f9=Qz!71";
const PAY_SECRET: &str = "sk_pay_9Zx-04_tR+e/s";
/// Long enough for a right answer on a busy machine, short enough for a slow one to be cut.
const LIMITS: &str =
    "answer-within = \"60s\"\nwall-time = \"60s\"\nidle = \"6s\"\nrequest-deadline = \"12s\"\nattach = \"60s\"\n";

/// An effect that is looked for is found by then, on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// The guest that shows what it was given.
fn mirror() -> Guest {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::var_os("ONCEGATE_GUESTS").map_or_else(|| root.join("../target/guests"), PathBuf::from);
    Guest {
        component: built.join("mirror.wasm"),
        contract: fs::read_to_string(root.join("guests/mirror/contract.toml")).unwrap(),
    }
}

/// Three raw servers that the policy names, one that it does not, and the program between.
struct Scene {
    harness: Harness,
    server: Server,
    caller: Caller,
    shop: Villain,
    pay: Villain,
    files: Villain,
    stranger: Villain,
}

impl Scene {
    fn start() -> Self {
        Self::with(&[], |policy, _| policy)
    }

    /// With more environment, and another policy than the one that names the servers as they are.
    fn with(environment: &[(&str, String)], change: impl FnOnce(String, &[&Villain; 2]) -> String) -> Self {
        let [shop, pay, files, stranger] = [(); 4].map(|()| Villain::start());
        let endpoints = [("shop", shop.url()), ("pay", pay.url()), ("files", files.url())];
        let secrets = [("shop", SHOP_SECRET), ("pay", PAY_SECRET)];
        let options = Options {
            endpoints: endpoints.into_iter().map(|(name, url)| (name.to_owned(), url)).collect(),
            secrets: secrets.into_iter().map(|(name, secret)| (name.to_owned(), secret.to_owned())).collect(),
            limits: LIMITS.to_owned(),
            ..Options::default()
        };
        let harness = Harness::with(mirror(), options).unwrap();
        let file = harness.home().join("policy.toml");
        let policy = fs::read_to_string(&file).unwrap();
        fs::write(&file, change(policy, &[&shop, &pay])).unwrap();
        let token = harness.run(&["token", "add", "--tenant", "acme", "--name", "acme"]).unwrap();
        assert_eq!(token.code, Some(0), "{}", token.stderr);
        let mut command = harness.command();
        command.arg("serve").arg(harness.component()).envs(environment.iter().cloned());
        let server = Server::start(&mut command).unwrap();
        let caller = Caller(server.client(token.stdout.trim()));
        Self { harness, server, caller, shop, pay, files, stranger }
    }

    fn show(&self, id: &str) -> Value {
        self.caller.show(id)
    }

    fn act(&self, id: &str) -> Value {
        self.caller.act(id)
    }
}

impl Scene {
    /// Waits until the program's log has these words; all of it then.
    #[track_caller]
    fn logs(&self, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = self.server.errors();
            if log.contains(words) {
                return log;
            }
            assert!(begun.elapsed() < SETTLED_WITHIN, "no {words:?} in {log}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A client, which many threads can use.
struct Caller(Client);

impl Caller {
    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let heard = self.0.call(OLDER, tool, arguments).unwrap();
        heard["structuredContent"].clone()
    }

    fn show(&self, id: &str) -> Value {
        self.call("show", &json!({ "id": id }))
    }

    fn act(&self, id: &str) -> Value {
        self.call("act", &json!({ "id": id }))
    }
}

/// Calls until the status is none of these; an open effect is looked for again after a while.
fn until_not(statuses: &[&str], mut call: impl FnMut() -> Value) -> Value {
    let begun = Instant::now();
    loop {
        let heard = call();
        let open = heard["status"].as_str().is_some_and(|status| statuses.contains(&status));
        if !open || begun.elapsed() > SETTLED_WITHIN {
            return heard;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Does the same with all, at once.
fn each<T: Sync, R: Send>(all: &[T], what: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let running: Vec<_> = all.iter().map(|one| scope.spawn(|| what(one))).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}
