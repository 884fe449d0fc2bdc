//! What a `postgres://` URL says: the server, how TLS is done, and where this machine keeps what is its own.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::LedgerError;

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged before the connection counts as lost.
const UNACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);
/// After so much silence the other side is asked whether it is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TRIES: u32 = 3;
/// A file of certificates or a password; they are far shorter.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const PORT: u16 = 5432;

/// A server that a ledger is on.
pub(super) struct Target {
    pub(super) config: Config,
    /// None where the URL says that the connection is plain.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// `FOLDER/ledger` stands for the ledger here: markers, locks and keys lie beside it.
    pub(super) beside: PathBuf,
    /// The URL without its secrets.
    pub(super) shown: String,
}

/// The URL as people may see it: no password, no file's contents, no options. None for one that is not understood,
/// of which nothing may be shown: anything in it may be a password.
pub fn shown_url(url: &str) -> Option<String> {
    let (config, own) = read_url(url).ok()?;
    Some(shown(&config, &own.data.unwrap_or_default()))
}

/// The URL with this folder for what is this machine's own, where it names none.
pub fn with_folder(url: &str, folder: &Path) -> String {
    let named = split(url).is_some_and(|(_, parameters)| parameters.iter().any(|(name, _)| *name == "data"));
    if named {
        return url.to_owned();
    }
    let joined = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joined}data={}", encoded(&folder.display().to_string()))
}

/// Whether a password stands in the URL itself, or may: it is not understood.
pub fn has_password(url: &str) -> bool {
    read_url(url).map_or(true, |(config, _)| config.get_password().is_some() || config.get_options().is_some())
}

/// What the text says, without reading any file that it names.
fn read_url(url: &str) -> Result<(Config, Own), LedgerError> {
    let (server, parameters) = split(url).ok_or_else(|| invalid("it is not postgres://HOST/DATABASE"))?;
    let mut own = Own::default();
    let mut theirs = Vec::new();
    for (name, value) in parameters {
        if !own.take(name, &value)? {
            theirs.push(format!("{name}={}", encoded(&value)));
        }
    }
    let text = format!("{server}?{}", theirs.join("&"));
    let config = Config::from_str(&text).map_err(|_| invalid("a part of it is not understood"))?;
    Ok((config, own))
}

/// Where this machine's part of the ledger with this URL is: beside a file of this name.
pub fn beside(url: &str) -> Option<PathBuf> {
    let (_, parameters) = split(url)?;
    let data = parameters.into_iter().find(|(name, _)| *name == "data")?.1;
    Some(PathBuf::from(data).join("ledger"))
}

impl Target {
    /// # Errors
    /// `Invalid`, in words of our own: the text of the URL may hold a password.
    pub(super) fn parse(url: &str) -> Result<Target, LedgerError> {
        let (config, own) = read_url(url)?;
        own.target(config)
    }
}

/// Parameters that are ours, or that we read otherwise than the driver.
#[derive(Default)]
struct Own {
    data: Option<PathBuf>,
    plain: bool,
    roots: Option<PathBuf>,
    password: Option<PathBuf>,
}

impl Own {
    fn take(&mut self, name: &str, value: &str) -> Result<bool, LedgerError> {
        match (name, value) {
            ("data", folder) if Path::new(folder).is_absolute() => self.data = Some(folder.into()),
            ("data", _) => return Err(invalid("data= is not an absolute folder")),
            ("sslmode", "disable") => self.plain = true,
            // A server that is not verified is nobody's: there is no half of TLS here.
            ("sslmode", "require" | "verify-ca" | "verify-full") => {}
            ("sslmode", _) => return Err(invalid("sslmode is verify-full (also by the name require) or disable")),
            ("sslrootcert", file) => self.roots = Some(file.into()),
            ("passfile", file) => self.password = Some(file.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn target(self, mut config: Config) -> Result<Target, LedgerError> {
        let data = self.data.ok_or_else(|| invalid("data=FOLDER is missing: where this host keeps its head marker"))?;
        if config.get_hosts().is_empty() {
            return Err(invalid("it names no host"));
        }
        let sockets = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let plain = self.plain || sockets;
        config.ssl_mode(if plain { SslMode::Disable } else { SslMode::Require });
        if let Some(file) = &self.password {
            let text = read(file, "the password's file")?;
            config.password(text.trim_ascii_end());
        }
        if config.get_application_name().is_none() {
            config.application_name("oncegate");
        }
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.connect_timeout(CONNECT_WITHIN).tcp_user_timeout(UNACKNOWLEDGED_WITHIN);
        config.keepalives_idle(KEEPALIVE_AFTER).keepalives_interval(KEEPALIVE_EVERY);
        config.keepalives_retries(KEEPALIVE_TRIES);
        let tls = if plain { None } else { Some(tls(self.roots.as_deref())?) };
        let shown = shown(&config, &data);
        Ok(Target { config, tls, beside: data.join("ledger"), shown })
    }
}

/// The server's part and the decoded parameters.
fn split(url: &str) -> Option<(&str, Vec<(&str, String)>)> {
    if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
        return None;
    }
    let (server, query) = url.split_once('?').unwrap_or((url, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let parameters = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let decoded = parameters.map(|(name, value)| Some((name, decoded(value)?)));
    Some((server, decoded.collect::<Option<Vec<_>>>()?))
}

fn invalid(why: &str) -> LedgerError {
    LedgerError::Invalid { why: format!("the URL of the ledger on PostgreSQL: {why}") }
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        if byte == b'%' {
            let pair = [left.next()?, left.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn encoded(text: &str) -> String {
    let mut to = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b',' => {
                to.push(char::from(byte))
            }
            _ => to.push_str(&format!("%{byte:02X}")),
        }
    }
    to
}

/// The URL as people may see it: no password, no options.
fn shown(config: &Config, data: &Path) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(at)),
        Host::Unix(path) => encoded(&path.to_string_lossy()).replace('/', "%2F"),
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let user = config.get_user().map(|user| format!("{}@", encoded(user))).unwrap_or_default();
    let database = config.get_dbname().map(encoded).unwrap_or_default();
    format!("postgres://{user}{hosts}/{database}?data={}", encoded(&data.to_string_lossy()))
}

fn read(file: &Path, what: &str) -> Result<Vec<u8>, LedgerError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file).and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| invalid(&format!("{what} {} cannot be read: {error}", file.display())))?;
    Ok(bytes)
}

/// Verifies the server by these certificates, else by those that browsers trust.
fn tls(file: Option<&Path>) -> Result<Arc<ClientConfig>, LedgerError> {
    let roots = match file {
        Some(file) => trusted(file)?,
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
    };
    let failed = |error: rustls::Error| invalid(&format!("TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    Ok(Arc::new(versions.with_root_certificates(roots).with_no_client_auth()))
}

fn trusted(file: &Path) -> Result<RootCertStore, LedgerError> {
    let unread = |why: String| invalid(&format!("the certificates in {}: {why}", file.display()));
    let pem = read(file, "the file of certificates")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unread(error.to_string()))?;
        roots.add(certificate).map_err(|error| unread(error.to_string()))?;
    }
    if roots.is_empty() { Err(unread("there is none".to_owned())) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(url: &str) -> String {
        Target::parse(url).err().unwrap().to_string()
    }

    #[test]
    fn what_people_see_has_no_secret() {
        let url = "postgres://ann:s3cret@db.example,other.example:6000/led%20ger?data=/var/a%20b&options=-c%20x%3Dy";
        let target = Target::parse(url).unwrap();
        assert_eq!(target.shown, "postgres://ann@db.example:5432,other.example:6000/led%20ger?data=/var/a%20b");
        assert_eq!(target.beside, Path::new("/var/a b/ledger"));
        assert_eq!(beside(&target.shown), Some(target.beside.clone()), "and it says where things are");
        assert_eq!(target.config.get_password(), Some(b"s3cret".as_slice()));
        assert_eq!(target.config.get_options(), Some("-c x=y"));
        assert!(target.tls.is_some(), "TLS is what is meant when nothing is said");
    }

    #[test]
    fn what_is_refused_is_said_without_a_secret() {
        for url in [
            "postgres://ann:s3cret@h:port/db?data=/d",
            "postgres://ann:s3cret@h/db",
            "postgres://ann:s3cret@h/db?data=relative",
            "postgres://ann:s3cret@h/db?data=/d&sslmode=prefer",
            "postgres://ann:s3cret@h/db?data=/d&unheard=s3cret",
            "postgres://ann:s3cret@h/db?data=/d&sslrootcert=/nowhere",
            "postgres:///db?data=/d&password=s3cret",
        ] {
            assert!(!why(url).contains("s3cret"), "{url}: {}", why(url));
        }
    }

    #[test]
    fn a_url_is_shown_only_when_it_is_understood() {
        let shown = |url: &str| shown_url(url);
        assert_eq!(shown("postgres://ann:s3/cret@h/db?data=/d").unwrap(), "postgres://ann@h:5432/db?data=/d");
        assert_eq!(shown("postgres://ann:s3cret@h:port/db"), None);
        assert!(has_password("postgres://ann:x@h/db") && has_password("postgres://h:port/db"));
        assert!(has_password("postgres://h/db?password=x") && !has_password("postgres://h/db?passfile=/nowhere"));
        assert_eq!(with_folder("postgres://h/db", Path::new("/a b")), "postgres://h/db?data=/a%20b");
        assert_eq!(
            with_folder("postgres://h/db?sslmode=disable", Path::new("/a")),
            "postgres://h/db?sslmode=disable&data=/a"
        );
        assert_eq!(with_folder("postgres://h/db?data=/b", Path::new("/a")), "postgres://h/db?data=/b");
    }

    #[test]
    fn a_socket_and_a_word_make_it_plain() {
        assert!(Target::parse("postgres:///db?data=/d&host=/run/postgresql").unwrap().tls.is_none());
        assert!(Target::parse("postgres://h/db?data=/d&sslmode=disable").unwrap().tls.is_none());
        assert!(Target::parse("postgres://h/db?data=/d&sslmode=require").unwrap().tls.is_some());
    }
}
