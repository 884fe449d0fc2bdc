//! The command line, as plain data.

pub(crate) mod decide;
pub(crate) mod permit;
pub(crate) mod registry;
pub(crate) mod sign;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};
use oncegate_ledger::StateTag;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, already done, or ok
  1  failed, or an error
  2  wrong command line
  3  refused
  4  pending
  5  the component can do more than the old one
  6  the ledger is damaged

Files:
  $ONCEGATE_HOME, or the platform's data directory + /oncegate, holds ledger.redb, policy.toml and
  the cache of compiled components.";

/// Runs an agent's tools as WebAssembly components whose effects happen once.
#[derive(Debug, Parser)]
#[command(name = "oncegate", version, after_long_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Global {
    /// The ledger, `redb:PATH` or `postgres://HOST/DATABASE` [default: redb:$ONCEGATE_HOME/ledger.redb]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) ledger: Option<String>,
    /// The policy [default: $ONCEGATE_HOME/policy.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Where tools run: in processes of their own that can reach nothing, or in this one [default: process for `serve`
    /// on Linux, else none]
    #[arg(long, global = true, value_enum, value_name = "WHERE", env = "ONCEGATE_ISOLATION")]
    pub(crate) isolation: Option<Isolation>,
    #[command(flatten)]
    pub(crate) registry: registry::Access,
    /// Say what happens on stderr; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Where tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Isolation {
    /// In runner processes without secrets, files, network or other programs, and compiled in another
    Process,
    /// In this process, behind WebAssembly's walls alone
    None,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool once
    Call(Call),
    /// Serve tools to agents over MCP
    Serve(Serve),
    /// Say who may call over HTTP
    Token(Token),
    /// Print all that a component could ever do, without running it
    Inspect(Inspect),
    /// Make a pair of keys for signing components
    Keygen(sign::Keygen),
    /// Sign a component
    Sign(sign::Sign),
    /// Check a component's signature
    Verify(sign::Verify),
    /// Fetch a component from a registry
    Pull(registry::Pull),
    /// Put a component into a registry
    Push(registry::Push),
    /// Embed a contract and WIT text in a component
    Pack(Pack),
    /// Check a contract, and whether it fits a component
    Check(Check),
    /// Make, check or explain a policy
    Policy(Policy),
    /// Look after the ledger of effects
    Ledger(Ledger),
    /// Freeze, compare and run plans: targets that are approved before the first effect
    Plan(Plan),
    /// Grant, list and revoke permits
    Permit(permit::Permit),
    /// Say what would stop an effect: ledger, policy, credentials, clock, disk
    Doctor,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write man pages
    Man {
        /// Folder to write them to
        directory: PathBuf,
    },
    /// What `--isolation process` starts to run tools in
    #[command(hide = true)]
    RunnerProcess,
    /// What `--isolation process` starts to compile a component in
    #[command(hide = true)]
    CompilerProcess {
        /// Seconds of CPU time
        seconds: u64,
    },
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  oncegate call refunds.wasm issue-refund --context tenant=acme \\\n    --args '{\"return_id\": \"R-1001\", \"amount\": 4200, \"reason\": \"broken\"}'"
)]
pub(crate) struct Call {
    /// The component
    pub(crate) component: PathBuf,
    /// The tool
    pub(crate) tool: String,
    /// Its arguments: a JSON object, or @FILE with one
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub(crate) args: String,
    /// A fact from the orchestrator: tenant, trigger, run, sequence, plan, permit or parent
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) context: Vec<String>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Over standard input and output until the client closes them. Files in a folder are served as they come and go.\nThe policy is read again when its file has changed and then rested for 2 seconds; calls under way keep the one they\nbegan with. A file that is broken or cut off is not taken, which is said on stderr: write the whole file beside it\nand rename it.\n\nA client may send a key of its own for a call: `_meta` dev.oncegate/idempotency-key, or the header Idempotency-Key.\nIt makes no effect and hides none: a call that is another effect than the key was first used for is refused.\n\nExamples:\n  oncegate serve refunds.wasm tools/ --context tenant=acme\n  oncegate serve tools/ --http 127.0.0.1:8080\n  oncegate serve tools/ --http 127.0.0.1:8080 --public-url https://tools.example/mcp \\\n      --authorization-server https://login.example --keys login-keys.json"
)]
pub(crate) struct Serve {
    /// Components, and folders of them
    #[arg(required = true, value_name = "COMPONENT|DIR")]
    pub(crate) components: Vec<PathBuf>,
    /// A fact for all calls: tenant, trigger, run, sequence, plan, permit or parent
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) context: Vec<String>,
    /// Name tools `component.tool`
    #[arg(long)]
    pub(crate) prefix: bool,
    /// Name tools with `_` for `-`, for clients that make identifiers of names
    #[arg(long)]
    pub(crate) underscores: bool,
    /// Serve streamable HTTP at http://ADDR/mcp, to those with a token of `oncegate token`
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    /// With --http: another name under which clients reach it
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) host: Vec<String>,
    /// With --http: a web page's origin that may call it, such as `https://app.example:443`
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) origin: Vec<String>,
    /// With --http: keep sessions for clients of 2025-11-25 and earlier that need one; others go without
    #[arg(long)]
    pub(crate) sessions: bool,
    /// With --sessions: end a session in which nothing has happened for so long [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = every, requires = "sessions")]
    pub(crate) session_idle: Option<std::time::Duration>,
    /// With --http: the URL that clients know it by
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// With --http: who gives out tokens, told to clients as RFC 9728 says. Without --keys a gateway in front checks
    /// them and brings a token of `oncegate token`
    #[arg(long, value_name = "URL")]
    pub(crate) authorization_server: Vec<String>,
    /// With --authorization-server: its public keys, a JWK set (RFC 7517), read again when it changes; its tokens are
    /// then checked here: signature, issuer, this server as audience, and time
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// With --keys: the claim that names the tenant
    #[arg(long, value_name = "CLAIM", default_value = "tenant")]
    pub(crate) tenant_claim: String,
    /// With --keys: the claim that names the permit, which a token then must have
    #[arg(long, value_name = "CLAIM")]
    pub(crate) permit_claim: Option<String>,
    /// How long a call may take before a client that takes tasks is given one instead of an answer
    #[arg(long, value_name = "DURATION", value_parser = every, default_value = "2s")]
    pub(crate) task_after: std::time::Duration,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it this once; only its digest is kept
    #[command(after_help = "Example:\n  oncegate token add --tenant acme --name support-agent")]
    Add {
        /// The tenant that its calls are for
        #[arg(long)]
        tenant: String,
        /// The permit that its calls use
        #[arg(long)]
        permit: Option<String>,
        /// What to call it
        #[arg(long)]
        name: Option<String>,
    },
    /// List the tokens
    List,
    /// Refuse a token from now on
    Revoke {
        /// Its name
        name: String,
    },
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  oncegate inspect refunds.wasm\n  oncegate inspect new.wasm --against old.wasm   # exit 5 if it can do more\n  oncegate inspect new.wasm --against old.wasm --sarif > new.sarif"
)]
pub(crate) struct Inspect {
    /// The component
    pub(crate) component: PathBuf,
    /// An older version to compare with
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Option<PathBuf>,
    /// Print SARIF 2.1.0 for code scanning: effects are notes, risks warnings, what widened errors
    #[arg(long)]
    pub(crate) sarif: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  oncegate pack tool.wasm --contract contract.toml --wit wit -o packed.wasm")]
pub(crate) struct Pack {
    /// The component, without a contract
    pub(crate) component: PathBuf,
    /// The contract
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: PathBuf,
    /// The tool's own WIT: a file, or a folder with one .wit file
    #[arg(long, value_name = "DIR")]
    pub(crate) wit: PathBuf,
    /// Where to write the result
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  oncegate check contract.toml\n  oncegate check contract.toml tool.wasm")]
pub(crate) struct Check {
    /// The contract, or a component that has one
    pub(crate) file: PathBuf,
    /// A component that the contract has to fit
    pub(crate) component: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Write a minimal policy for a component, all of it commented out and explained
    Init {
        /// The component
        component: PathBuf,
        /// Write here instead of to the terminal; an existing file is kept
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Check the policy file
    Check,
    /// Print the JSON Schema of policies, for editors
    #[command(
        after_help = "Example:\n  oncegate policy schema > policy.schema.json   # and `#:schema ./policy.schema.json` atop the policy"
    )]
    Schema,
    /// List every limit: its value in force, its default, what happens beyond it, and why there is one
    Limits,
    /// Say what the policy decides for an operation, and by which line
    Explain {
        /// The component
        component: PathBuf,
        /// The operation
        operation: String,
        /// For which tenant
        #[arg(long)]
        tenant: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Plan {
    #[command(subcommand)]
    pub(crate) command: PlanCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Resolve every target of a list and freeze them, sending nothing
    Freeze(PlanFreeze),
    /// Compare a plan with the ledger
    #[command(
        after_help = "States: approved (its row waits), never-sent (no row), waiting (under way, or a person decides first),\nunknown, frozen, mismatch (its row has other values), stranded, no-effect, done, undone, revoked, superseded.\nAll but the last four are open. Exit code 4 if something is open.\n\nExamples:\n  oncegate plan status spring\n  oncegate plan status spring --against summer   # and what the later list no longer has"
    )]
    Status {
        /// The plan
        plan: String,
        /// A later plan of the same tool: says which targets it no longer has
        #[arg(long, value_name = "PLAN")]
        against: Option<String>,
        /// List every effect, not only those that are not done
        #[arg(long)]
        all: bool,
    },
    /// Call the tool for every target that is open
    #[command(
        after_help = "Run it again after whatever ended it: what is done is not done twice. Ctrl-C starts nothing more and waits\nfor what was sent.\n\nExit codes: 0 nothing is open; 4 something is not settled or was not started; 3 all that is open was refused;\n1 all that is open failed.\n\nExample:\n  oncegate plan run spring campaign.wasm --at-once 8"
    )]
    Run(PlanRun),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The list is a JSON array of the tool's arguments, or of {\"arguments\": {…}, \"plan\": {…}}; or CSV whose header\nnames the tool's properties. Columns plan.FIELD, and the object `plan`, give values for fields that the\ncontract takes from the plan.\nLookups are made; every effect that the tool asks for is noted and not sent. The tool hears `awaiting-approval`\nfor each: what it would do after a success is not part of the plan, and is refused when the plan is run.\nThe same list again finishes what was interrupted. Exit code 3 if a target cannot be frozen: then none is.\n\nExamples:\n  oncegate plan freeze spring campaign.wasm send-campaign --targets readers.csv \\\n    --context trigger=spring --reason 'approved by marketing'\n  oncegate plan freeze refunds-may refunds.wasm issue-refund --targets-from list-due --args '{\"month\": \"May\"}' \\\n    --reason 'the list of 1 June'"
)]
#[command(group = clap::ArgGroup::new("list").required(true).args(["targets", "targets_from"]))]
pub(crate) struct PlanFreeze {
    /// The plan's name
    pub(crate) plan: String,
    /// The component
    pub(crate) component: PathBuf,
    /// The tool that is called for every target
    pub(crate) tool: String,
    /// The list, FILE.json or FILE.csv
    #[arg(long, value_name = "FILE")]
    pub(crate) targets: Option<PathBuf>,
    /// A tool of the component that only reads and whose result is the list
    #[arg(long, value_name = "TOOL")]
    pub(crate) targets_from: Option<String>,
    /// That tool's arguments: a JSON object, or @FILE with one
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", requires = "targets_from")]
    pub(crate) args: String,
    /// A fact from the orchestrator: tenant, trigger, run, sequence, permit or parent
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) context: Vec<String>,
    /// Why these targets
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Who approves them
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) actor: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanRun {
    /// The plan
    pub(crate) plan: String,
    /// The component
    pub(crate) component: PathBuf,
    /// Calls at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) at_once: u8,
    /// A fact that the plan was not frozen with, such as permit
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) context: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ledger {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Create the ledger; the only way one comes into being
    #[command(
        after_help = "On PostgreSQL the tables are made in the database that the URL names; what is this machine's own (head\nmarker, locks, keys) lies in $ONCEGATE_HOME, or where data=FOLDER says. Every other host says once `oncegate\nledger trust`. A password is better in a file (passfile=FILE) than in the URL, which other users of this machine\nmay see.\n\nExamples:\n  oncegate ledger init\n  oncegate --ledger 'postgres://ledger@db.example/effects?passfile=/run/secrets/ledger' ledger init"
    )]
    Init,
    /// List effects, the newest first
    #[command(
        after_help = "The newest is what was updated last. Every effect in these states is read to find it.\n\nExamples:\n  oncegate ledger list --state unknown\n  oncegate ledger list --json --limit 0 | jq .label"
    )]
    List {
        /// Only those in this state [possible values: planned, awaiting-approval, dispatched, responded, done, no-effect, issued, stranded, unknown, undone, revoked, superseded]
        #[arg(long)]
        state: Option<StateTag>,
        /// At most so many, the newest; 0 for all
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one effect: what was sent, what came back, who decided what, and what can be done now
    #[command(
        after_help = "With --json also the request and the raw answers, whole.\n\nExamples:\n  oncegate ledger show 3f9a\n  oncegate ledger show 'refund R-1001'\n  oncegate ledger show 3f9a --raw 8c01 > answer.http"
    )]
    Show {
        /// The key or its first digits, or the whole label
        key: String,
        /// Write the raw answer of this attempt, as far as it was received, and nothing else
        #[arg(long, value_name = "ATTEMPT")]
        raw: Option<String>,
    },
    /// Say what happened to an effect that nobody can find out by itself, or that was contradicted
    #[command(
        after_help = "The only way to thaw a frozen row. `--as no-effect` is refused while a sender may still send:\nend its process, or `oncegate ledger fence` its host.\n\nExamples:\n  oncegate ledger resolve 3f9a --as done --receipt re_12 --expect-version 4 --reason 'seen in the dashboard'\n  oncegate ledger resolve 3f9a --as no-effect --expect-version 4 --reason 'support: never arrived'\n  oncegate ledger resolve 3f9a --as failed-later --expect-version 3 --reason 'charged back'"
    )]
    Resolve(decide::Resolve),
    /// Say that an effect must not happen
    #[command(
        after_help = "Of an effect that was sent it is recorded as a wish: it stops bytes that are not sent yet and every\nresend; if the effect happened it is done all the same.\n\nExample:\n  oncegate ledger revoke 3f9a --expect-version 2 --reason 'the customer kept it'"
    )]
    Revoke(decide::OnRow),
    /// Let an effect be done again, by those named only
    #[command(
        after_help = "The only way to a second effect under one key. Everybody else goes on hearing the first.\n\nExample:\n  oncegate ledger supersede 3f9a --for permit:p-7 --expect-version 5 --reason 'the parcel was lost'"
    )]
    Supersede(decide::Supersede),
    /// Approve the stored request of an effect that waits for a person
    #[command(
        after_help = "Prints the whole request, and every earlier epoch, revocation and claim of its target. What is\nsent is this request, however the next call is worded.\n\nExample:\n  oncegate ledger approve 3f9a --expect-version 1 --reason 'checked with the shop'"
    )]
    Approve(decide::OnRow),
    /// Deny an effect that waits for a person; it is revoked
    #[command(after_help = "Example:\n  oncegate ledger deny 3f9a --expect-version 1 --reason 'not a valid claim'")]
    Deny(decide::OnRow),
    /// Say that a host sends no more, so that what it left can be settled
    #[command(
        after_help = "A fenced host sends nothing that it has not begun to send. One that was already sending is not held\nback: end its process or cut its network first.\n\nExample:\n  oncegate ledger fence 77ab --reason 'the machine was taken off the network'"
    )]
    Fence(decide::Fence),
    /// Say that an account's label, URL or credential changed and it is the same account
    #[command(
        after_help = "Effects keep their keys: what was done under the old name is not done again.\n\nExamples:\n  oncegate ledger rename 3f9a --url https://api2.pay.example --expect-version 1 --reason 'new host name'\n  oncegate ledger rename --tenant acme --owner acme-refunds --action refund --credential pay-2 \\\n    --expect-version 1 --reason 'rotated'"
    )]
    Rename(decide::Rename),
    /// Say that nobody comes back to what effects belong to, so that they may be pruned
    #[command(after_help = "Example:\n  oncegate ledger close-parent case-1207 --reason 'the case is closed'")]
    CloseParent(decide::CloseParent),
    /// Destroy the key of what effects belong to: their labels, requests and answers are gone for good
    #[command(
        after_help = "Only what is encrypted ([privacy] encrypt in the policy), and only of effects that are done, no-effect,\nrevoked, superseded or undone, and not frozen. Keys, states and receipts stay: a repeat is still answered\nwith the receipt, and other values under a key are still refused. Without --expect-version it says what\nwould be erased. A copy of the folder of keys (LEDGER.keys) keeps alive what is erased here.\nExit code 4 if some of it was stored in clear before encryption was on; `oncegate ledger prune` drops that.\n\nExamples:\n  oncegate ledger erase --parent acme/case-1207 --reason 'asked for by the customer'\n  oncegate ledger erase --parent acme/case-1207 --expect-version 9 --reason 'asked for by the customer'\n  oncegate ledger erase 3f9a --expect-version 3 --reason 'asked for by the customer'"
    )]
    Erase(decide::Erase),
    /// Drop the bytes and history of effects that are decided and old, and keep a tombstone of each
    #[command(
        after_help = "Only effects that are done, no-effect, revoked, superseded or undone, and not frozen, whose parent was\nclosed, and that nothing has changed for the policy's replay-window (90 days) or the provider's own.\nA tombstone still answers with the receipt and still refuses other values under the key. Space of\nlarge answers goes back to the system; the ledger's own file reuses its space.\n\nExamples:\n  oncegate ledger prune --dry-run\n  oncegate ledger prune --before 180d --without-parent"
    )]
    Prune(decide::Prune),
    /// Find out what is unknown: lost senders, stored answers, settle lookups
    #[command(
        after_help = "Sends no effect; runs only the lookups that contracts name for this and the policy permits.\nWaits where a contract says how long the provider's index may lag.\nExit code 4 if something is still open."
    )]
    Reconcile {
        /// Only this key, or its first digits
        key: Option<String>,
        /// Also look for receipts that no lookup has confirmed yet
        #[arg(long)]
        confirm: bool,
        /// Go on until interrupted: look at what is open again and again, so long apart, at each row ever more seldom
        #[arg(long, value_name = "DURATION", value_parser = every, conflicts_with_all = ["key", "confirm"])]
        every: Option<std::time::Duration>,
    },
    /// Check every record, chain and history, and the head marker
    #[command(
        after_help = "Prints the digest over all heads: keep it elsewhere to notice a ledger that was replaced.\nExit code 6 if the ledger is damaged, is no ledger, or lacks what its head marker says.\n\nExample, far from the ledger:\n  oncegate ledger export > ledger.ndjson\n  oncegate ledger verify --export ledger.ndjson"
    )]
    Verify {
        /// Check this file, which `ledger export` wrote, instead of the ledger
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
    },
    /// Accept a ledger that is behind its head marker, or has none, as it is
    #[command(
        after_help = "Effects that the ledger does not know may happen again: that is what you decide. Find the newest\ncopy first. Actor and reason are recorded in the ledger.\n\nExample:\n  oncegate ledger trust --reason 'the disk died; this is the backup of 03:00, nothing ran since'"
    )]
    Trust {
        /// Why this ledger is accepted
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Who decides it
        #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
        actor: Option<String>,
    },
    /// Print all records as JSON lines
    Export,
    /// Move a ledger with its whole history, and seal the source for ever
    #[command(
        after_help = "What was interrupted goes on when it is asked for again. The copy is verified, the source is sealed, and both\nare compared by their checkpoints; from then on the source refuses every effect and says where it went. Keys\n($LEDGER.keys) go along; every other host needs a copy of them, and says `oncegate ledger trust` once.\n\nExample:\n  oncegate ledger migrate redb:/var/lib/oncegate/ledger.redb \\\n    'postgres://ledger@db.example/effects?passfile=/run/secrets/ledger' --reason 'a second host'"
    )]
    Migrate {
        /// The ledger that moves, `redb:PATH`
        from: String,
        /// Where to, `postgres://HOST/DATABASE`: an empty database
        to: String,
        /// Why it moves
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Who decides it
        #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
        actor: Option<String>,
    },
    /// List the hosts of a ledger on PostgreSQL: when each was last seen, and which are fenced
    #[command(
        after_help = "Silence is a suspicion and no stop: what a silent host left becomes unknown and can be settled to done. It\nbecomes no-effect only when the host is known to have stopped, or `oncegate ledger fence` says so.\n\nExample:\n  oncegate ledger hosts --all"
    )]
    Hosts {
        /// Also those that have ended
        #[arg(long)]
        all: bool,
    },
}

/// `30s`, `5m`, `1h`.
fn every(text: &str) -> Result<std::time::Duration, String> {
    let asked = "write it as 30s, 5m or 1h";
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| asked)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(asked.to_owned()),
    };
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or(asked)?;
    Ok(std::time::Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(every("30s").map(|time| time.as_secs()), Ok(30));
        assert_eq!(every("2h").map(|time| time.as_secs()), Ok(7_200));
        for wrong in ["", "s", "30", "0s", "-1s", "1.5s", "99999999999999999999s", "5 m"] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }
}
