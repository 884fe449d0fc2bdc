//! The command lines of registries.

use std::path::PathBuf;

use clap::Args;

/// How registries are reached, wherever a component is named as `oci://…`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Access {
    /// Where the registry's USER:PASSWORD or token is, written as in a policy: env:NAME, file:/PATH, command:PROGRAM or
    /// keyring:SERVICE/ACCOUNT [default: what `docker login` keeps for the registry, else none]
    #[arg(long, global = true, value_name = "SOURCE", hide_short_help = true)]
    pub(crate) registry_auth: Option<String>,
    /// Speak plain http with the registry; only if it is at a loopback or private address
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) registry_plain_http: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A tag may name another component tomorrow: the digest that it names now is printed, and is what `call`, `serve`\nand `inspect` take. A signature that was pushed along is written beside the component.\n\nExamples:\n  oncegate pull registry.example/tools/refunds:1.2 -o refunds.wasm\n  oncegate call oci://registry.example/tools/refunds@sha256:… issue-refund --args @refund.json"
)]
pub(crate) struct Pull {
    /// oci://REGISTRY/REPOSITORY, with :TAG or @sha256:DIGEST
    pub(crate) reference: String,
    /// Write it here as well; it is kept in the data directory
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "COMPONENT.minisig goes along where there is one. Prints the digest that names what was put there.\n\nExample:\n  oncegate push refunds.wasm registry.example/tools/refunds:1.2"
)]
pub(crate) struct Push {
    /// The component
    pub(crate) component: PathBuf,
    /// oci://REGISTRY/REPOSITORY:TAG
    pub(crate) reference: String,
}
