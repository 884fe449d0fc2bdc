//! Programs that ran, and programs that still run.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// No program of a test runs longer; one that does is killed and reported.
const RUN_MAX: Duration = Duration::from_secs(120);

/// What a program left behind.
#[derive(Clone, Debug)]
pub struct Run {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it: 9 is SIGKILL.
    pub signal: Option<i32>,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Run {
    /// Starts a command and waits for its end.
    ///
    /// # Errors
    /// It cannot be started, or does not end within two minutes.
    pub fn of(command: &mut Command) -> Result<Self> {
        Running::start(command)?.wait(RUN_MAX)
    }

    fn from(output: Output, took: Duration) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took,
        }
    }

    /// True when SIGKILL ended it.
    pub fn was_killed(&self) -> bool {
        self.signal == Some(9)
    }

    /// Standard output as one JSON document.
    ///
    /// # Errors
    /// It is none; the message shows both outputs.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| {
            let code = self.code;
            let (stdout, stderr) = (&self.stdout, &self.stderr);
            format!("exit {code:?}, standard output is no JSON: {stdout}\n{stderr}")
        })
    }

    /// The word under `status` in the JSON.
    ///
    /// # Errors
    /// There is none.
    pub fn status(&self) -> Result<String> {
        let json = self.json()?;
        let status = json["status"].as_str();
        Ok(status.with_context(|| format!("no `status` in {json}"))?.to_owned())
    }
}

/// A program that may still run. Dropping it kills it.
pub struct Running {
    child: Child,
    started: Instant,
    lines: Receiver<String>,
    errors: Arc<Mutex<Vec<u8>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Running {
    /// Starts a command with all three streams piped.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut stderr = child.stderr.take().context("no standard error")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || forward(stdout, |line| sender.send(line).is_ok()));
        let errors = Arc::default();
        let kept: Arc<Mutex<Vec<u8>>> = Arc::clone(&errors);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // What was read until it fails is what there is.
            while let Ok(read @ 1..) = stderr.read(&mut bytes) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..read]);
            }
        });
        Ok(Self { child, started: Instant::now(), lines, errors, reader: Some(reader) })
    }

    /// Writes one line to standard input.
    ///
    /// # Errors
    /// The program has closed it.
    pub fn write_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("stdin was closed")?;
        writeln!(stdin, "{line}")?;
        Ok(stdin.flush()?)
    }

    /// Writes bytes to standard input as they are.
    ///
    /// # Errors
    /// The program has closed it.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("stdin was closed")?;
        stdin.write_all(bytes)?;
        Ok(stdin.flush()?)
    }

    /// The end of standard input.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// The next line of standard output.
    ///
    /// # Errors
    /// None came in that time.
    pub fn read_line(&self, within: Duration) -> Result<String> {
        self.lines.recv_timeout(within).with_context(|| format!("no line of output within {within:?}"))
    }

    /// What it has written to standard error until now.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.errors.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// The process's number, for a signal of the test's own.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, then what it left behind.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(mut self) -> Result<Run> {
        self.child.kill()?;
        let status = self.child.wait()?;
        self.collect(status)
    }

    /// Waits for the end so long from now.
    ///
    /// # Errors
    /// See [`Running::wait`].
    pub fn wait_more(self, within: Duration) -> Result<Run> {
        let until = self.started.elapsed() + within;
        self.wait(until)
    }

    /// Waits for the end, so long from the start.
    ///
    /// # Errors
    /// It does not come in that time; the program is killed then.
    pub fn wait(mut self, within: Duration) -> Result<Run> {
        self.close_stdin();
        let pause = Duration::from_millis(2);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return self.collect(status);
            }
            if self.started.elapsed() > within {
                let run = self.kill()?;
                bail!("still running after {within:?}; stderr: {}", run.stderr);
            }
            thread::sleep(pause);
        }
    }

    fn collect(mut self, status: ExitStatus) -> Result<Run> {
        let took = self.started.elapsed();
        let mut stdout = String::new();
        while let Ok(line) = self.lines.recv() {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
        let output = Output { status, stdout: stdout.into_bytes(), stderr: self.errors().into_bytes() };
        Ok(Run::from(output, took))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn forward(stdout: impl Read, mut take: impl FnMut(String) -> bool) {
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { return };
        if !take(line) {
            return;
        }
    }
}
