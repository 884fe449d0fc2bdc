//! WASI with nothing behind it: the interfaces that language runtimes import, closed.
//!
//! No preopened directory, no environment, no arguments, empty standard input, capped output, a
//! coarse clock. `wasi:sockets` and `wasi:http` are not linked at all, so a component that imports
//! them does not load.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::component::Linker;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult, bindings};
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi::{HostMonotonicClock, WasiCtx, WasiCtxBuilder, WasiView};

/// Resolution of the clocks a guest sees; finer ones help only those who measure other guests.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(1);
/// Bytes a guest may write at once to standard output.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Links the closed interfaces; this list and no other is what a guest can reach.
pub(crate) fn link<T: WasiView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    use bindings::{cli, filesystem, random};
    // io, clocks, random, stdin, stdout, stderr
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    random::insecure::add_to_linker::<T, WasiRandom>(linker, |t| t.ctx().ctx.random())?;
    random::insecure_seed::add_to_linker::<T, WasiRandom>(linker, |t| t.ctx().ctx.random())?;
    cli::exit::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    cli::environment::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    cli::terminal_input::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    cli::terminal_output::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    cli::terminal_stdin::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    cli::terminal_stdout::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    cli::terminal_stderr::add_to_linker::<T, WasiCli>(linker, T::cli)?;
    // There is no directory to open; language runtimes import these all the same.
    filesystem::preopens::add_to_linker::<T, WasiFilesystem>(linker, T::filesystem)?;
    filesystem::types::add_to_linker::<T, WasiFilesystem>(linker, T::filesystem)
}

/// A context that grants nothing; what the guest prints goes to `log`.
pub(crate) fn context(log: &Log, random_bytes_max: usize) -> WasiCtx {
    WasiCtxBuilder::new()
        .stdout(log.clone())
        .stderr(log.clone())
        .max_random_size(random_bytes_max as u64)
        .monotonic_clock(CoarseClock(std::time::Instant::now()))
        .build()
}

struct CoarseClock(std::time::Instant);

impl HostMonotonicClock for CoarseClock {
    fn resolution(&self) -> u64 {
        u64::try_from(CLOCK_RESOLUTION.as_nanos()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        let step = self.resolution();
        let nanos = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        nanos / step * step
    }
}

/// What a guest printed: kept up to a cap, counted beyond it.
///
/// Writes beyond the cap are swallowed and not refused: `println!` panics on a full pipe.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<Kept>>);

struct Kept {
    bytes: Vec<u8>,
    max: usize,
    swallowed: u64,
    /// Bytes that were brought to the host's process already.
    told: usize,
}

impl Log {
    /// A log that keeps `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept { bytes: Vec::new(), max, swallowed: 0, told: 0 })))
    }

    /// The text that was kept, control characters replaced (a log line must not steer a terminal),
    /// and the number of bytes that were not kept.
    pub(crate) fn text(&self) -> (String, u64) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.bytes);
        let plain = text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
        (plain, kept.swallowed)
    }

    /// What was kept since this was last asked, and how many bytes were not kept until now.
    #[cfg(target_os = "linux")]
    pub(crate) fn news(&self) -> (Vec<u8>, u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, now) = (kept.told, kept.bytes.len());
        kept.told = now;
        (kept.bytes[told..].to_vec(), kept.swallowed)
    }

    /// Counts bytes that were not kept where they were written.
    #[cfg(target_os = "linux")]
    pub(crate) fn swallowed(&self, bytes: u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.swallowed = kept.swallowed.saturating_add(bytes);
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = kept.max.saturating_sub(kept.bytes.len()).min(bytes.len());
        kept.bytes.extend_from_slice(&bytes[..room]);
        kept.swallowed += (bytes.len() - room) as u64;
    }
}

impl IsTerminal for Log {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Log {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Log {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        Self::write(self, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Log {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_swallows_and_counts_what_is_beyond_its_cap() {
        let log = Log::new(4);
        log.write(b"ab\x1b[31mcd");
        assert_eq!(log.text(), ("ab\u{fffd}[".to_owned(), 5));
    }

    #[test]
    fn a_guest_sees_nothing_of_its_host() {
        use bindings::cli::environment::Host as _;
        use bindings::filesystem::preopens::Host as _;

        struct Guest(WasiCtx, wasmtime::component::ResourceTable);
        impl WasiView for Guest {
            fn ctx(&mut self) -> wasmtime_wasi::WasiCtxView<'_> {
                wasmtime_wasi::WasiCtxView { ctx: &mut self.0, table: &mut self.1 }
            }
        }
        assert!(std::env::vars().next().is_some(), "a host without variables proves nothing");
        let mut guest = Guest(context(&Log::new(4), 8), wasmtime::component::ResourceTable::new());
        assert_eq!(guest.cli().get_environment().unwrap(), []);
        assert_eq!(guest.cli().get_arguments().unwrap(), Vec::<String>::new());
        assert_eq!(guest.cli().initial_cwd().unwrap(), None);
        assert_eq!(guest.filesystem().get_directories().unwrap().len(), 0);
    }
}
