//! The command lines of keys and signatures.

use std::path::PathBuf;

use clap::Args;

/// Where a key's password is.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// Read the key's password from this file; else it is $ONCEGATE_KEY_PASSWORD, else asked for on the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The key is minisign's: `minisign -G` makes such keys too, and `minisign -S` and `-V` take this one.\n\nExample:\n  oncegate keygen -o acme.key     # and acme.key.pub, for those who verify"
)]
pub(crate) struct Keygen {
    /// Where to write the secret key; the public one is written beside it, with .pub
    #[arg(short, long, value_name = "FILE", default_value = "oncegate.key")]
    pub(crate) output: PathBuf,
    /// Protect the secret key by its file's mode alone
    #[arg(long, conflicts_with = "password_file")]
    pub(crate) no_password: bool,
    #[command(flatten)]
    pub(crate) password: Password,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Writes COMPONENT.minisig. Its trusted comment names the component, its digest and the time.\n\nExample:\n  oncegate sign refunds.wasm --key acme.key"
)]
pub(crate) struct Sign {
    /// The component
    pub(crate) component: PathBuf,
    /// The secret key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Write the signature here; it is looked for beside the component
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) password: Password,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 3 if the signature does not count.\n\nExamples:\n  oncegate verify refunds.wasm                     # by the policy's signers\n  oncegate verify refunds.wasm --key acme.key.pub"
)]
pub(crate) struct Verify {
    /// The component, with its signature in COMPONENT.minisig
    pub(crate) component: PathBuf,
    /// A public key, or its file, instead of the policy's signers
    #[arg(long, value_name = "KEY|FILE")]
    pub(crate) key: Option<String>,
}
