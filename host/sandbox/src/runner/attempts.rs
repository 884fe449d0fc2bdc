//! What a runner tries from within, to show that it cannot.

use std::fs::File;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, setrlimit, test_kill_process};

use super::system;
use crate::isolation::Attempt;

/// Tries all of it.
pub(super) fn all() -> Vec<Attempt> {
    let new_file = std::env::temp_dir().join("oncegate-runner-was-here");
    vec![
        attempt("read a file", File::open("/etc/passwd")),
        attempt("read the environment of another process", File::open("/proc/1/environ")),
        attempt("read its own memory as a file", File::open("/proc/self/mem")),
        attempt("list a folder", std::fs::read_dir("/")),
        attempt("look at a file", std::fs::metadata("/etc/passwd")),
        attempt("make a file", File::create(new_file)),
        attempt("connect over TCP", TcpStream::connect("127.0.0.1:9")),
        attempt("open a UDP port", UdpSocket::bind("127.0.0.1:0")),
        attempt("connect to a local service", UnixStream::connect("/run/systemd/private")),
        attempt("run a program", Command::new("/proc/self/exe").spawn()),
        attempt("start a thread", std::thread::Builder::new().spawn(|| {})),
        attempt("trace a process", system::try_to_trace(1)),
        attempt("send a signal", test_kill_process(Pid::INIT).map_err(io::Error::from)),
        attempt(
            "raise a limit",
            setrlimit(Resource::Core, Rlimit { current: None, maximum: None }).map_err(io::Error::from),
        ),
        attempt("leave its namespaces", system::unshare(libc::CLONE_NEWUSER)),
        attempt("find a secret in its environment", environment()),
    ]
}

fn attempt<T>(what: &str, result: io::Result<T>) -> Attempt {
    Attempt { what: what.to_owned(), refused: result.err().map(|error| error.to_string()) }
}

fn environment() -> io::Result<()> {
    match std::env::vars_os().next() {
        Some(_) => Ok(()),
        None => Err(io::Error::other("the environment is empty")),
    }
}
