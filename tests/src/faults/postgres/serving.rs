//! One `oncegate serve` over standard input and output that many agents call at once.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A server shakes hands by then, on a machine that is busy with others.
const READY_WITHIN: Duration = Duration::from_secs(120);

type Waiting = Arc<Mutex<HashMap<i64, mpsc::Sender<Value>>>>;

/// A server. Dropping it kills it.
pub struct Serving {
    child: Mutex<Child>,
    pid: u32,
    stdin: Mutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicI64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Serving {
    /// Starts it and shakes hands.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(command: &mut Command) -> Result<Arc<Self>> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let waiting = Waiting::default();
        let heard = Arc::clone(&waiting);
        thread::spawn(move || hear(BufReader::new(stdout), &heard));
        let (pid, next) = (child.id(), AtomicI64::new(1));
        let serving = Arc::new(Self { pid, child: Mutex::new(child), stdin: Mutex::new(stdin), waiting, next });
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "oncegate-faults", "version": "1" },
        });
        let answer = serving.ask("initialize", &hello)?.recv_timeout(READY_WITHIN);
        answer.context("the server shakes no hands")?;
        serving.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized", "params": {} }))?;
        Ok(serving)
    }

    fn write(&self, message: &Value) -> Result<()> {
        let mut stdin = lock(&self.stdin);
        writeln!(stdin, "{message}")?;
        Ok(stdin.flush()?)
    }

    fn ask(&self, method: &str, params: &Value) -> Result<mpsc::Receiver<Value>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        lock(&self.waiting).insert(id, sender);
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(receiver)
    }

    /// Asks for a tool's call, under an id that was never used; the answer comes, or the channel closes.
    ///
    /// # Errors
    /// The server has gone.
    pub fn call(&self, tool: &str, arguments: &Value) -> Result<mpsc::Receiver<Value>> {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("no process")?;
        let mut child = lock(&self.child);
        ensure!(child.try_wait()?.is_none(), "it has ended");
        Ok(kill_process(pid, signal)?)
    }

    /// SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&self) -> Result<()> {
        let mut child = lock(&self.child);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        matches!(lock(&self.child).try_wait(), Ok(None))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.kill();
    }
}

/// Hands answers to those who wait, until there are no more; then nobody waits in vain.
fn hear(output: impl BufRead, waiting: &Waiting) {
    for line in output.lines().map_while(Result::ok) {
        let Ok(mut message) = serde_json::from_str::<Value>(&line) else { continue };
        let asked = message["id"].as_i64().and_then(|id| lock(waiting).remove(&id));
        if let Some(asked) = asked {
            // Who asked may have given up.
            asked.send(message["result"]["structuredContent"].take()).ok();
        }
    }
    lock(waiting).clear();
}
