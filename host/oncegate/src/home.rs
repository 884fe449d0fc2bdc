//! Where the program's files are, and opening them.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use oci_client::Reference;
use oncegate_ledger::postgres::{has_password, shown_url, with_folder};
use oncegate_ledger::private::{Master, Terms};
use oncegate_ledger::redb::everybody_can_change;
use oncegate_ledger::{Ledger, LedgerError};
use oncegate_sandbox::isolation::Program;
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{Options, Runners, Sandbox};

use crate::args::{Global, Isolation};
use crate::exit::usage;
use crate::registry::{self, Access, Client, Shelf};

/// Bytes of a policy; it is written by hand.
const POLICY_BYTES_MAX: u64 = 4 << 20;

/// The data directory and the global options.
#[derive(Clone)]
pub(crate) struct Home {
    directory: PathBuf,
    global: Global,
}

impl Home {
    pub(crate) fn new(global: Global) -> anyhow::Result<Self> {
        if let Some(url) = &global.ledger {
            check_ledger_url(url)?;
        }
        let directory = directory()?;
        // A database's URL takes this machine's own folder whole.
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        Ok(Self { directory, global })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// The URL that opens the ledger. It may hold a password: what people see is [`Home::ledger_shown`].
    pub(crate) fn ledger_url(&self) -> String {
        match &self.global.ledger {
            Some(url) if is_database(url) => with_folder(url, &self.directory),
            Some(url) => url.clone(),
            None => format!("redb:{}", self.directory.join("ledger.redb").display()),
        }
    }

    /// The URL as people may see it.
    pub(crate) fn ledger_shown(&self) -> String {
        shown(&self.ledger_url())
    }

    /// The words that a command line about this ledger begins with.
    pub(crate) fn ledger_command(&self) -> String {
        let without_secret =
            |url: &String| if is_database(url) && has_password(url) { shown(url) } else { url.clone() };
        let url = self.global.ledger.as_ref().map(without_secret);
        let option = url.map(|url| format!(" --ledger '{}'", url.replace('\'', "'\\''")));
        format!("oncegate{} ledger", option.unwrap_or_default())
    }

    pub(crate) fn policy_file(&self) -> PathBuf {
        self.global.policy.clone().unwrap_or_else(|| self.directory.join("policy.toml"))
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    /// The file of a component that a command names. One in a registry is fetched unless it is here already,
    /// and is named by digest, or not run.
    pub(crate) async fn component(&self, name: &Path) -> anyhow::Result<PathBuf> {
        let Some(reference) = name.to_str().and_then(registry::reference) else { return Ok(name.to_owned()) };
        let reference = reference?;
        let shelf = self.fetched()?;
        if let Some(kept) = reference.digest().and_then(|digest| shelf.find(digest)) {
            return Ok(kept);
        }
        let client = self.registry(&reference).await?;
        registry::refuse_tag(&client, &reference).await?;
        Ok(shelf.fetch(&client, &reference).await?.1)
    }

    /// A client for the reference's registry.
    pub(crate) async fn registry(&self, reference: &Reference) -> anyhow::Result<Client> {
        Client::new(Access::of(&self.global.registry, reference).await?)
    }

    /// Where components from registries are kept.
    pub(crate) fn fetched(&self) -> anyhow::Result<Shelf> {
        Shelf::open(&self.directory.join("components"))
    }

    /// The policy; where the default file does not exist, the one that grants nothing.
    pub(crate) fn policy(&self) -> anyhow::Result<Policy> {
        Ok(self.policy_and_text()?.0)
    }

    /// The same, and the text that it was read from.
    pub(crate) fn policy_and_text(&self) -> anyhow::Result<(Policy, String)> {
        let file = self.policy_file();
        if self.global.policy.is_none() && !file.exists() {
            return Ok((Policy::default(), String::new()));
        }
        refuse_if_others_can_write(&file)?;
        let text = self.policy_text()?;
        Ok((Policy::parse(&file.display().to_string(), &text)?, text))
    }

    /// The policy file's text.
    pub(crate) fn policy_text(&self) -> anyhow::Result<String> {
        read_text(&self.policy_file(), "the policy", POLICY_BYTES_MAX)
    }

    pub(crate) async fn ledger(&self) -> anyhow::Result<Arc<dyn Ledger>> {
        let url = self.ledger_shown();
        let ledger = self.opened().await;
        ledger.with_context(|| format!("the ledger {url} cannot be used"))
    }

    /// The ledger with its keys; an erasure that was interrupted is completed.
    async fn opened(&self) -> Result<Arc<dyn Ledger>, LedgerError> {
        let ledger = self.with_keys(oncegate_ledger::open(&self.ledger_url()).await?).await;
        if let Some(private) = ledger.private()
            && private.finish(now_ms()).await? > 0
        {
            tracing::info!("an erasure that was interrupted is complete");
        }
        Ok(ledger)
    }

    /// Reads and writes under the keys beside the ledger, as the policy's `[privacy]` says. Without a policy that
    /// can be read nothing new is encrypted that was not before, and keys that the policy's key wraps are not read.
    pub(crate) async fn with_keys(&self, ledger: Arc<dyn Ledger>) -> Arc<dyn Ledger> {
        let terms = match self.policy() {
            Ok(policy) => oncegate_sandbox::privacy::terms(&policy).await,
            Err(error) => Terms { encrypt: false, master: Master::Unreadable(format!("{error:#}")) },
        };
        oncegate_ledger::private::over(ledger, terms)
    }

    /// The ledger as it is stored, for looking only: what is encrypted is ciphertext.
    pub(crate) async fn ledger_as_stored(&self) -> anyhow::Result<Arc<dyn Ledger>> {
        let (url, shown) = (self.ledger_url(), self.ledger_shown());
        oncegate_ledger::open_for_reading(&url).await.with_context(|| format!("the ledger {shown} cannot be read"))
    }

    /// The ledger for looking only, even where it refuses effects.
    pub(crate) async fn ledger_for_reading(&self) -> anyhow::Result<Arc<dyn Ledger>> {
        Ok(self.with_keys(self.ledger_as_stored().await?).await)
    }

    /// A sandbox; without a usable ledger it still reads, and refuses effects saying why.
    pub(crate) async fn sandbox(&self) -> anyhow::Result<Sandbox> {
        self.sandbox_over(self.opened().await.map_err(|error| error.to_string()))
    }

    /// A sandbox over a ledger that is open already.
    pub(crate) fn sandbox_over(&self, ledger: Result<Arc<dyn Ledger>, String>) -> anyhow::Result<Sandbox> {
        self.sandbox_under(self.policy()?, ledger)
    }

    /// The same under a policy that was read already.
    pub(crate) fn sandbox_under(
        &self,
        policy: Policy,
        ledger: Result<Arc<dyn Ledger>, String>,
    ) -> anyhow::Result<Sandbox> {
        let sandbox = self.sandbox_behind(self.runners()?, policy, ledger)?;
        sandbox.begun()?;
        Ok(sandbox)
    }

    /// Processes for guests, where guests have some; they start while other things are done.
    pub(crate) fn runners(&self) -> anyhow::Result<Option<Runners>> {
        Ok(match self.global.isolation {
            Some(Isolation::Process) => Some(Runners::start(this_program())?),
            Some(Isolation::None) | None => None,
        })
    }

    /// A sandbox over these; whether guests can run there has to be asked before any does.
    pub(crate) fn sandbox_behind(
        &self,
        runners: Option<Runners>,
        policy: Policy,
        ledger: Result<Arc<dyn Ledger>, String>,
    ) -> anyhow::Result<Sandbox> {
        let clock = Arc::new(now_ms);
        let options = Options { policy, ledger, cache: self.cache(), clock };
        Ok(match runners {
            Some(runners) => Sandbox::behind(options, runners)?,
            None => Sandbox::new(options)?,
        })
    }
}

/// This very program, whatever has become of its file, as it is started to run and to compile tools.
pub(crate) fn this_program() -> Program {
    Program {
        path: PathBuf::from("/proc/self/exe"),
        runner: vec!["runner-process".into()],
        compiler: vec!["compiler-process".into()],
    }
}

/// A ledger that ends with the process would let every effect happen again in the next one. What follows the kind may
/// hold a password and is not repeated.
fn check_ledger_url(url: &str) -> anyhow::Result<()> {
    const USE: &str = "use redb:PATH or postgres://HOST/DATABASE";
    match url.split_once(':') {
        Some(("redb", path)) if !path.is_empty() => Ok(()),
        Some(("redb", _)) => Err(usage(format!("--ledger redb: names no file; {USE}"))),
        Some(_) if is_database(url) => Ok(()),
        Some(("memory", _)) => Err(usage(format!(
            "--ledger memory: a ledger in memory forgets what was done, and effects would happen again; {USE}"
        ))),
        Some((kind, _)) => Err(usage(format!("--ledger {kind:?}: there is no such kind of ledger; {USE}"))),
        None => Err(usage(format!("--ledger: that is no kind of ledger; {USE}"))),
    }
}

pub(crate) fn is_database(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// A ledger's URL as people may see it.
pub(crate) fn shown(url: &str) -> String {
    if !is_database(url) {
        return url.to_owned();
    }
    shown_url(url).unwrap_or_else(|| "postgres://…".to_owned())
}

/// Reads a text file up to a bound. A device or a pipe has no length to ask for and may never end.
pub(crate) fn read_text(path: &Path, what: &str, bytes_max: u64) -> anyhow::Result<String> {
    let unreadable = || format!("{what} {} cannot be read", path.display());
    let file = std::fs::File::open(path).with_context(unreadable)?;
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).with_context(unreadable)?;
    if text.len() as u64 > bytes_max {
        bail!("{what} {} has more than {bytes_max} bytes, which is more than is read", path.display());
    }
    Ok(text)
}

/// Milliseconds since the Unix epoch; a clock before it counts as 0, which ends permissions early
/// and never lengthens one.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn directory() -> anyhow::Result<PathBuf> {
    if let Some(home) = std::env::var_os("ONCEGATE_HOME").filter(|home| !home.is_empty()) {
        return Ok(PathBuf::from(home));
    }
    match directories::ProjectDirs::from("", "", "oncegate") {
        Some(directories) => Ok(directories.data_dir().to_owned()),
        None => bail!("there is no home directory; set ONCEGATE_HOME"),
    }
}

/// A policy that others can write or replace is not the operator's. In a folder as `/tmp` (sticky) nobody replaces the
/// files of others.
fn refuse_if_others_can_write(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for path in [file, folder] {
        let Ok(metadata) = std::fs::metadata(path) else { continue };
        if everybody_can_change(metadata.permissions().mode()) {
            let (file, path) = (file.display(), path.display());
            bail!(
                "the policy {file} can be changed by everybody, by the mode of {path}; make it the operator's alone (chmod o-w)"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Usage;

    #[test]
    fn a_ledger_outlives_the_process() {
        assert!(check_ledger_url("redb:/var/lib/ledger.redb").is_ok());
        assert!(check_ledger_url("postgres://db/x").is_ok() && check_ledger_url("postgresql://db/x").is_ok());
        for url in ["memory:", "memory:x", "redb:", "postgres:", "postgrs://ann:s3cret@db/x", "ledger.redb", ""] {
            let error = check_ledger_url(url).unwrap_err();
            assert!(error.downcast_ref::<Usage>().is_some(), "{url}");
            assert!(error.to_string().ends_with("use redb:PATH or postgres://HOST/DATABASE"), "{error}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        assert_eq!(shown("redb:/x"), "redb:/x");
        assert_eq!(shown("postgres://ann:s3cret@h/db?data=/d"), "postgres://ann@h:5432/db?data=/d");
        assert_eq!(shown("postgres://ann:s3cret@h:nine/db"), "postgres://…");
    }
}
