//! The operator's decisions, as plain data.

use clap::{Args as ClapArgs, ValueEnum};

/// Who decides, and why.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct By {
    /// Why; it is recorded
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Who decides [default: the user of the system]
    #[arg(long, value_name = "NAME", env = "USER", hide_env = true, hide_env_values = true)]
    pub(crate) actor: Option<String>,
    /// A name for the decision: told twice it is recorded once [default: a digest of all that is decided]
    #[arg(long, value_name = "ID")]
    pub(crate) decision: Option<String>,
}

/// A decision on one effect.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct OnRow {
    /// The key or its first digits, or the whole label
    pub(crate) key: String,
    /// The version of the row that the decision rests on, as `oncegate ledger show` prints it
    #[arg(long, value_name = "N")]
    pub(crate) expect_version: u64,
    #[command(flatten)]
    pub(crate) by: By,
}

/// What an operator found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Found {
    /// It happened; needs its receipt
    Done,
    /// It did not happen, and no sender can still send it
    NoEffect,
    /// It happened, and the provider took it back since: evidence on a row that stays done
    FailedLater,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) row: OnRow,
    /// What happened
    #[arg(long = "as", value_name = "WHAT")]
    pub(crate) found: Found,
    /// The provider's identifier for it, with `--as done`
    #[arg(long, value_name = "ID", required_if_eq("found", "done"))]
    pub(crate) receipt: Option<String>,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Supersede {
    #[command(flatten)]
    pub(crate) row: OnRow,
    /// Who may do it again: permit:ID, plan:ID or run:ID; everybody else hears the earlier epoch
    #[arg(long = "for", value_name = "WHOM", value_parser = whom)]
    pub(crate) whom: String,
}

fn whom(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some(("permit" | "plan" | "run", id)) if !id.is_empty() => Ok(text.to_owned()),
        _ => Err("expected permit:ID, plan:ID or run:ID".to_owned()),
    }
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Fence {
    /// The host or its first digits, as `oncegate ledger show` prints it with each attempt
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Rename {
    /// An effect that was sent under the account: its key, first digits or label
    #[arg(conflicts_with_all = ["tenant", "owner", "action"], required_unless_present_all = ["tenant", "owner", "action"])]
    pub(crate) key: Option<String>,
    /// Instead of an effect: for whom
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Instead of an effect: the contract's name
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Instead of an effect: the action
    #[arg(long, value_name = "NAME")]
    pub(crate) action: Option<String>,
    /// The new label, as the policy's `account` says it
    #[arg(long, value_name = "LABEL")]
    pub(crate) account: Option<String>,
    /// The new endpoint, as the contract names it
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// The new URL, as the policy says it
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The new credential's name
    #[arg(long, value_name = "NAME", conflicts_with = "no_credential")]
    pub(crate) credential: Option<String>,
    /// It needs no credential any more
    #[arg(long)]
    pub(crate) no_credential: bool,
    /// The version of the binding that the decision rests on; without it the binding is shown
    #[arg(long, value_name = "N")]
    pub(crate) expect_version: Option<u64>,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct CloseParent {
    /// What effects belong to, as the orchestrator named it in the context's `parent`
    pub(crate) parent: String,
    /// Whose it is [default: the only tenant of the policy]
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Erase {
    /// An effect that belongs to nothing: its key, first digits or label
    #[arg(conflicts_with = "parent", required_unless_present = "parent")]
    pub(crate) key: Option<String>,
    /// All that belongs to this: the tenant, a slash, and the name as the orchestrator gave it in the context's `parent`
    #[arg(long, value_name = "TENANT/OBJECT")]
    pub(crate) parent: Option<String>,
    /// The version that the decision rests on; without it what would be erased is shown
    #[arg(long, value_name = "N")]
    pub(crate) expect_version: Option<u64>,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Prune {
    /// Only what has not changed since: an age (90d, 12h) or a date (2026-01-31, or with a time)
    #[arg(long, value_name = "AGE|DATE")]
    pub(crate) before: Option<String>,
    /// Also effects that belong to no parent
    #[arg(long)]
    pub(crate) without_parent: bool,
    /// Say what would be pruned, and prune nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
