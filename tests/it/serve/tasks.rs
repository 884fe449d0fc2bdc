//! Long calls as tasks, in both revisions and over both transports: whatever happens to the process or
//! the client meanwhile, the effect happens once and its first receipt is what the task is answered.

mod bounds;
mod changed;
mod lives;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use serde_json::{Value, json};

use super::{TOOL, http, receipt, refunds};
use crate::agent::refund;

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const RELATED_KEY: &str = "io.modelcontextprotocol/related-task";
/// Deadlines at the provider that a test waits for.
const SHORT: &str = "request-deadline = \"3s\"\nidle = \"3s\"";

enum Wire {
    Stdio(Box<Stdio>),
    Http(Box<Server>, Box<Client>),
}

/// A client of one revision that takes tasks, and its server.
struct Agent {
    wire: Wire,
    revision: &'static str,
}

/// The four ways to speak with a server.
#[derive(Clone, Copy, Debug)]
struct Way {
    http: bool,
    revision: &'static str,
}

const WAYS: [Way; 4] = [
    Way { http: false, revision: OLDER },
    Way { http: false, revision: NEWER },
    Way { http: true, revision: OLDER },
    Way { http: true, revision: NEWER },
];

fn after_a_second(command: &mut Command) -> &mut Command {
    command.args(["--task-after", "1s"])
}

/// A token, where a way needs one.
fn token(harness: &Harness, way: Way) -> String {
    if way.http { http::token(harness, "acme") } else { String::new() }
}

impl Agent {
    fn start(harness: &Harness, way: Way, token: &str) -> Self {
        let revision = way.revision;
        let wire = if way.http {
            let server = Server::start(after_a_second(&mut http::command(harness))).unwrap();
            let client = server.client(token);
            Wire::Http(Box::new(server), Box::new(client))
        } else {
            let mut command = super::command(harness);
            let command = after_a_second(&mut command);
            let opened = if revision == OLDER { Stdio::start(command) } else { Stdio::unopened(command) };
            Wire::Stdio(Box::new(opened.unwrap()))
        };
        Self { wire, revision }
    }

    /// The same server for somebody else.
    fn with_token(&self, token: &str, revision: &'static str) -> Other {
        let Wire::Http(server, _) = &self.wire else { panic!("only HTTP has tokens") };
        Other { client: server.client(token), revision }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let params = declared(self.revision, params);
        match &mut self.wire {
            Wire::Stdio(client) => client.ask(method, &params),
            Wire::Http(_, client) => client.ask(self.revision, method, &params),
        }
    }

    /// Makes a call that becomes a task; its name.
    #[track_caller]
    fn begin(&mut self, arguments: &Value) -> String {
        let told = self.ask("tools/call", &call(self.revision, arguments)).unwrap();
        let task = if self.revision == OLDER { &told["task"] } else { &told };
        assert_eq!(task["status"], "working", "{told:#}");
        if self.revision == NEWER {
            assert_eq!(told["resultType"], "task", "{told:#}");
        }
        task["taskId"].as_str().unwrap().to_owned()
    }

    fn get(&mut self, name: &str) -> Result<Value> {
        self.ask("tasks/get", &json!({ "taskId": name }))
    }

    /// The task once it is over.
    #[track_caller]
    fn over(&mut self, name: &str) -> Value {
        let started = Instant::now();
        loop {
            let task = self.get(name).unwrap();
            if task["status"] != "working" {
                return task;
            }
            assert!(started.elapsed() < ANSWER_WITHIN, "{task:#}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What a task is answered, as the call itself would have been.
    #[track_caller]
    fn result(&mut self, name: &str) -> Value {
        if self.revision == NEWER {
            let mut task = self.over(name);
            assert_eq!(task["status"], "completed", "{task:#}");
            return task["result"].take();
        }
        let result = self.ask("tasks/result", &json!({ "taskId": name })).unwrap();
        assert_eq!(result["_meta"][RELATED_KEY]["taskId"], name, "{result:#}");
        assert!(result.get("resultType").is_none(), "{result:#}");
        result
    }

    /// Makes an ordinary call; on a machine that is busy enough every call is long.
    #[track_caller]
    fn call(&mut self, arguments: &Value) -> Value {
        let result = self.ask("tools/call", &json!({ "name": TOOL, "arguments": arguments })).unwrap();
        if result["resultType"] == "task" { self.result(result["taskId"].as_str().unwrap()) } else { result }
    }

    /// The same once it is not pending any more.
    #[track_caller]
    fn settled(&mut self, arguments: &Value) -> Value {
        let started = Instant::now();
        loop {
            let result = self.call(arguments);
            if result["structuredContent"]["status"] != "pending" {
                return result;
            }
            assert!(started.elapsed() < ANSWER_WITHIN, "{result:#}");
            thread::sleep(Duration::from_secs(1));
        }
    }

    fn kill(self) {
        let run = match self.wire {
            Wire::Stdio(client) => client.kill().unwrap(),
            Wire::Http(server, _) => server.kill().unwrap(),
        };
        assert!(run.was_killed());
    }
}

/// Somebody else at a server over HTTP.
struct Other {
    client: Client,
    revision: &'static str,
}

impl Other {
    fn ask(&self, method: &str, params: &Value) -> Result<Value> {
        self.client.ask(self.revision, method, &declared(self.revision, params))
    }
}

/// Parameters of a client that takes tasks.
fn declared(revision: &str, params: &Value) -> Value {
    let mut params = params.clone();
    if revision == NEWER {
        params["_meta"][VERSION_KEY] = json!(NEWER);
        params["_meta"][CLIENT_KEY] = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    }
    params
}

/// A call that asks for a task where its revision has one ask.
fn call(revision: &str, arguments: &Value) -> Value {
    let mut call = json!({ "name": TOOL, "arguments": arguments });
    if revision == OLDER {
        call["task"] = json!({});
    }
    call
}

#[track_caller]
fn is_refused(answer: Result<Value>, code: i64) {
    let error = answer.unwrap_err().to_string();
    assert!(error.contains(&format!("\"code\":{code}")) || error.contains(&format!("\"code\": {code}")), "{error}");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < ANSWER_WITHIN, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The ledger is sound, as are its export and the one row in it.
fn is_sound(harness: &Harness, receipt: &str) {
    let run = harness.run(&["ledger", "verify"]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let list = harness.run(&["ledger", "list", "--json"]).unwrap();
    let row: Value = serde_json::from_str(list.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&row["state"], &row["receipt"]), (&json!("done"), &json!(receipt)), "{row:#}");
    assert_eq!(harness.provider().effects().unwrap()[0].id, receipt);
    assert_eq!(refunds(harness), 1);
}
