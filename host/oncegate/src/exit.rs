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

/// What is wrong with the command line where only the program can see it.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error that ends the program with [`Exit::Usage`].
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::msg(Usage(text.into()))
}

/// Prints the chain and gives the exit code that the error's kind has.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprint!("{}", shown(error));
    code(error).into()
}

fn code(error: &anyhow::Error) -> Exit {
    // What is no ledger, or another one, is not what was written either.
    let damaged = |error: &LedgerError| error.is_damaged() || matches!(error, LedgerError::Foreign { .. });
    if error.downcast_ref::<Usage>().is_some() {
        Exit::Usage
    } else if error.chain().filter_map(|cause| cause.downcast_ref()).any(damaged) {
        Exit::Damaged
    } else {
        Exit::Failed
    }
}

/// The chain, each cause on its own line; a cause that the line before already ends with is told once.
fn shown(error: &anyhow::Error) -> String {
    let mut before = lines(error);
    let mut text = format!("error: {before}\n");
    let mut number = 0;
    for cause in error.chain().skip(1).map(lines) {
        if before.ends_with(&cause) {
            continue;
        }
        text.push_str(&format!("  {number}: {cause}\n"));
        number += 1;
        before = cause;
    }
    text
}

/// Errors repeat text from outside; their own line ends stay.
fn lines(error: &(impl ToString + ?Sized)) -> String {
    error.to_string().lines().map(clean).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_once() {
        let cause = || std::io::Error::from_raw_os_error(2);
        let said = anyhow::Error::new(cause()).context("a cannot be read");
        assert_eq!(shown(&said), "error: a cannot be read\n  0: No such file or directory (os error 2)\n");
        let twice = anyhow::Error::new(cause()).context(format!("a cannot be read: {}", cause())).context("b fails");
        assert_eq!(shown(&twice), "error: b fails\n  0: a cannot be read: No such file or directory (os error 2)\n");
    }

    #[test]
    fn an_errors_kind_is_the_exit_code() {
        let ledger = |error: LedgerError| code(&anyhow::Error::new(error).context("the ledger cannot be read"));
        let at = || "x".to_owned();
        assert_eq!(ledger(LedgerError::Empty { at: at() }), Exit::Damaged);
        assert_eq!(ledger(LedgerError::Foreign { at: at(), why: at() }), Exit::Damaged);
        assert_eq!(ledger(LedgerError::Missing { at: at() }), Exit::Failed);
        assert_eq!(code(&usage("no").context("more")), Exit::Usage);
        assert_eq!(code(&anyhow::Error::new(std::fmt::Error).context(Usage(at()))), Exit::Usage);
    }
}
