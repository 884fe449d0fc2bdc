//! The command line of `oncegate permit`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Permit {
    #[command(subcommand)]
    pub(crate) command: PermitCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PermitCommand {
    /// Permit effects of some operations, so many and so much of them, until then
    #[command(
        after_help = "The orchestrator names it with --context permit=ID. It is needed to send, never to hear a stored\nanswer, and each effect counts once, however often it is tried. A permit cannot be changed: revoke it\nand grant another one under the same --grant, which may go on with what the first one began.\n\nExample:\n  oncegate permit grant spring-returns --tenant acme --operation create-refund \\\n    --count 100 --sum amount=500000 --expires 7d --reason 'recall of the kettles'"
    )]
    Grant(Grant),
    /// List permits with what is left of them
    List {
        /// Only those of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
    },
    /// End a permit: nothing more is sent under it
    Revoke {
        /// Its name
        id: String,
        /// Whose it is; needed when several tenants have one of this name
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        #[command(flatten)]
        by: By,
    },
}

/// What is permitted.
#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// Its name
    pub(crate) id: String,
    /// For whose effects
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: String,
    /// Only for this component, as `oncegate inspect` prints its digest
    #[arg(long, value_name = "DIGEST", conflicts_with = "owner")]
    pub(crate) component: Option<String>,
    /// Only for components whose contract has this name
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// An operation that may be sent; may be given several times
    #[arg(long = "operation", value_name = "NAME", required = true)]
    pub(crate) operations: Vec<String>,
    /// At most so many effects
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// At most so much of a field in all effects together, in minor units where it has a currency
    #[arg(long = "sum", value_name = "FIELD=MAX[:CURRENCY]")]
    pub(crate) sums: Vec<String>,
    /// Until then: a time, the start of a day in UTC, or so long from now, such as 36h or 7d
    #[arg(long, value_name = "TIME|DATE|DURATION")]
    pub(crate) expires: Option<String>,
    /// What it is given under; permits of one grant may go on with each other's effects [default: its name]
    #[arg(long, value_name = "NAME")]
    pub(crate) grant: Option<String>,
    #[command(flatten)]
    pub(crate) by: By,
}

/// Who decides, and why.
#[derive(Debug, Args)]
pub(crate) struct By {
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Who decides it
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) actor: Option<String>,
}
