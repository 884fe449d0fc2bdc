//! A runner that was taken over, played by a script: it can fail its own call and nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use oncegate_sandbox::isolation::Program;
use oncegate_sandbox::outcome::{Code, Outcome, Status};
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{CallRequest, Options as Sandboxed, Sandbox};
use tokio::runtime::Runtime;

use super::*;

/// Says that it is ready, and to each call what the test says; `{call}` is the call's number.
const PLAYED: &str = r#"
import socket, struct, sys
s = socket.socket(fileno=0)
def frame(kind, body):
    return struct.pack("<IB", len(body) + 1, kind) + body
def text(t):
    return struct.pack("<I", len(t)) + t
def ended(call, run):
    return frame(14, struct.pack("<Q", call) + text(b"") + struct.pack("<Q", 0) + run)
def asked(call, operation):
    field = text(b"reason") + b"\0" + text(b"x")
    return frame(13, struct.pack("<Q", call) + text(b"") + b"\1" + text(operation) + struct.pack("<I", 1) + field)
def looks_up(call):
    return frame(13, struct.pack("<Q", call) + text(b"") + b"\0" + text(b"get-return") + struct.pack("<I", 0))
s.sendall(frame(11, struct.pack("<I??I", 7, True, True, 64)))
buffer = b""
while True:
    more = s.recv(1 << 20)
    if not more:
        break
    buffer += more
    while len(buffer) >= 4:
        (length,) = struct.unpack_from("<I", buffer)
        if len(buffer) < 4 + length:
            break
        kind, body = buffer[4], buffer[5:4 + length]
        buffer = buffer[4 + length:]
        if kind == 2:
            (call,) = struct.unpack_from("<Q", body)
            SAYS
"#;

/// Runs one call of the puppet in runners that say this; what it is told.
fn call(harness: &Harness, says: &str) -> Outcome {
    Runtime::new().unwrap().block_on(call_in(harness, says))
}

async fn call_in(harness: &Harness, says: &str) -> Outcome {
    let file = harness.home().join("policy.toml");
    let policy = Policy::parse("policy.toml", &fs::read_to_string(&file).unwrap()).unwrap();
    let ledger = oncegate_ledger::open(&format!("redb:{}", harness.home().join("ledger.redb").display())).await;
    let options = Sandboxed {
        policy,
        ledger: ledger.map_err(|error| error.to_string()),
        cache: harness.home().join("cache"),
        clock: Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()),
    };
    let sandbox = Sandbox::behind_runners(options, program(harness, says)).unwrap();
    let component = sandbox.load(harness.component()).unwrap();
    let arguments = script("R-1", &json!([look(), refund()]));
    let context = [("tenant".to_owned(), TENANT.to_owned())].into();
    let outcome = sandbox.call(&component, CallRequest { tool: "act".to_owned(), arguments, context }).await;
    sandbox.drain().await;
    outcome
}

/// A runner that is the script, and the real compiler.
fn program(harness: &Harness, says: &str) -> Program {
    let script = harness.folder().join("runner.py");
    fs::write(&script, PLAYED.replace("SAYS", says)).unwrap();
    let oncegate = harness.command().get_program().to_owned();
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|path| Path::new(path).exists());
    let run = format!("exec {} \"$0\"", python.expect("python3 is not installed"));
    Program {
        path: "/bin/sh".into(),
        runner: vec!["-c".into(), run.into(), script.into()],
        compiler: vec!["-c".into(), "exec \"$0\" compiler-process \"$1\"".into(), oncegate],
    }
}

#[test]
fn it_costs_its_own_call_and_nothing_is_sent() {
    for says in [
        "s.sendall(b'\\xa5' * 1000)",
        "s.sendall(b'\\xff\\xff\\xff\\xff')",
        "s.close(); sys.exit(0)",
        "s.sendall(ended(call + 1, b'\\0' + struct.pack('<I', 0)))",
        "s.sendall(asked(call + 1, b'create-refund'))",
        // Each is answered after the provider was asked: the next one comes before.
        "s.sendall(looks_up(call) * 200)",
        "s.sendall(ended(call, b'\\2' + text(b'policy')))",
        "s.sendall(ended(call, b'\\0' + struct.pack('<I', 2000000000)))",
    ] {
        let harness = puppet("");
        let outcome = call(&harness, says);
        assert_eq!((outcome.status, outcome.code), (Status::Refused, Some(Code::ToolFailed)), "{says}: {outcome:?}");
        assert!(outcome.message.contains("was lost"), "{says}: {}", outcome.message);
        assert_eq!(harness.provider().count("refund").unwrap(), 0, "{says}");
    }
}

/// A runner may lie as a guest may: about its result, not about an effect.
#[test]
fn it_can_claim_no_more_than_a_guest() {
    let harness = puppet("");
    // `ok` of a list of texts, which is what the tool returns.
    let claims = "s.sendall(ended(call, b'\\0' + struct.pack('<I', 1) + b'\\x14\\1\\1\\x0d' \
                  + struct.pack('<I', 1) + b'\\x0c' + text(b'refunded re_1')))";
    let outcome = call(&harness, claims);
    assert_eq!(outcome.status, Status::Done, "{outcome:?}");
    assert!(outcome.message.contains("asked for no effect") && outcome.effects.is_empty(), "{outcome:?}");
    // Another type than the tool's is no result.
    let harness = puppet("");
    let outcome = call(&harness, "s.sendall(ended(call, b'\\0' + struct.pack('<I', 1) + b'\\0\\1'))");
    assert_eq!((outcome.status, outcome.code), (Status::Refused, Some(Code::ToolFailed)), "{outcome:?}");
    // An effect without the lookup that its key comes from, asked for directly.
    let harness = puppet("");
    let asks = "s.sendall(asked(call, b'create-refund'))\n        if kind == 3: s.sendall(ended(0, b'\\4'))";
    let outcome = call(&harness, asks);
    assert_eq!(outcome.status, Status::Refused, "{outcome:?}");
    assert_eq!(harness.provider().count("refund").unwrap(), 0);
}
