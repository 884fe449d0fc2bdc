//! Exit codes, and how an error is shown: as a chain, each cause on its own line.

use std::process::ExitCode;

use oncegate_ledger::LedgerError;
use oncegate_sandbox::outcome::Status;

use crate::print::clean;

/// What the program ends with. The numbers are documented and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, already done, or all is well.
    Ok = 0,
    /// Failed, or an error.
    Failed = 1,
    /// The command line is wrong; clap ends with the same number.
    #[expect(dead_code, reason = "clap exits by itself; it is here so that the list is whole")]
    Usage = 2,
    /// Refused.
    Refused = 3,
    /// Pending.
    Pending = 4,
    /// The component can do more than the old one.
    DoesMore = 5,
    /// The ledger is damaged.
    Damaged = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<Status> for Exit {
    fn from(status: Status) -> Self {
        match status {
            Status::Done | Status::AlreadyDone => Self::Ok,
            Status::Failed => Self::Failed,
            Status::Refused => Self::Refused,
            Status::Pending => Self::Pending,
        }
    }
}

/// Prints the chain and gives the exit code that the error's kind has.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", lines(error));
    for (number, cause) in error.chain().skip(1).enumerate() {
        eprintln!("  {number}: {}", lines(cause));
    }
    let damaged = error.chain().filter_map(|cause| cause.downcast_ref::<LedgerError>()).any(LedgerError::is_damaged);
    if damaged { Exit::Damaged.into() } else { Exit::Failed.into() }
}

/// Errors repeat text from outside; their own line ends stay.
fn lines(error: &(impl ToString + ?Sized)) -> String {
    error.to_string().lines().map(clean).collect::<Vec<_>>().join("\n")
}
