//! Who we are to a registry, and whether it may be spoken to without TLS.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;
use oncegate_sandbox::read_secret;
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::args::registry;
use crate::exit::usage;
use crate::home;

/// Bytes of Docker's file.
const DOCKER_BYTES_MAX: u64 = 1 << 20;

/// How one registry is reached.
pub(crate) struct Access {
    pub(super) auth: RegistryAuth,
    pub(super) plain_http: bool,
}

impl Access {
    /// What the command line says, else what `docker login` kept.
    pub(crate) async fn of(options: &registry::Access, reference: &Reference) -> anyhow::Result<Self> {
        let registry = reference.resolve_registry();
        if options.registry_plain_http {
            ensure!(
                is_near(registry),
                usage(format!("--registry-plain-http: {registry} is at no loopback or private address; use https"))
            );
        }
        let auth = match &options.registry_auth {
            Some(source) => {
                let secret = read_secret(source).await.map_err(|why| anyhow::anyhow!("--registry-auth: {why}"))?;
                auth_of(secret.expose_secret())
            }
            None => docker(registry)?,
        };
        Ok(Self { auth, plain_http: options.registry_plain_http })
    }
}

/// `USER:PASSWORD`, else a token.
fn auth_of(text: &str) -> RegistryAuth {
    match text.split_once(':') {
        Some((user, password)) => RegistryAuth::Basic(user.to_owned(), password.to_owned()),
        None => RegistryAuth::Bearer(text.to_owned()),
    }
}

/// Only where the address says so itself: a name may lead anywhere.
fn is_near(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => host == "localhost",
    }
}

fn docker(registry: &str) -> anyhow::Result<RegistryAuth> {
    let Some(file) = docker_file().filter(|file| file.exists()) else { return Ok(RegistryAuth::Anonymous) };
    let text = home::read_text(&file, "Docker's logins", DOCKER_BYTES_MAX)?;
    let config: Value = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))?;
    from_docker(&config, registry, &file)
}

fn docker_file() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(directories::BaseDirs::new()?.home_dir().join(".docker")))?;
    Some(folder.join("config.json"))
}

fn from_docker(config: &Value, registry: &str, file: &Path) -> anyhow::Result<RegistryAuth> {
    let helper = config["credHelpers"][registry].as_str();
    if let Some(helper) = helper {
        bail!(
            "{} keeps the login for {registry} in docker-credential-{helper}, which is not asked; give --registry-auth 'command:…' or another source",
            file.display()
        );
    }
    let Some(login) = config["auths"].get(registry) else { return Ok(RegistryAuth::Anonymous) };
    if let Some(token) = login["registrytoken"].as_str() {
        return Ok(RegistryAuth::Bearer(token.to_owned()));
    }
    let Some(auth) = login["auth"].as_str() else {
        bail!(
            "{} names {registry} and keeps its login elsewhere, which is not asked; give --registry-auth SOURCE",
            file.display()
        );
    };
    let decoded = BASE64_STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().map(auth_of) {
        Some(auth @ RegistryAuth::Basic(..)) => Ok(auth),
        _ => bail!("{} has no usable login for {registry}; log in again", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_addresses_that_are_near() {
        for near in ["127.0.0.1:5000", "[::1]:5000", "localhost", "localhost:5000", "10.0.0.7:5000", "192.168.1.1"] {
            assert!(is_near(near), "{near}");
        }
        for far in [
            "registry.example",
            "8.8.8.8:5000",
            "localhost.evil.example",
            "127.0.0.1.evil.example:5000",
            "169.254.169.254",
        ] {
            assert!(!is_near(far), "{far}");
        }
    }

    #[test]
    fn dockers_logins_are_read() {
        let file = Path::new("config.json");
        let config = serde_json::json!({
            "auths": {
                "r.example": { "auth": BASE64_STANDARD.encode("me:pass:word") },
                "t.example": { "registrytoken": "tok" },
                "kept.example": {},
                "bad.example": { "auth": "%%%" },
            },
            "credHelpers": { "h.example": "pass" },
        });
        let of = |registry| from_docker(&config, registry, file);
        assert!(of("r.example").unwrap() == RegistryAuth::Basic("me".into(), "pass:word".into()));
        assert!(of("t.example").unwrap() == RegistryAuth::Bearer("tok".into()));
        assert!(of("none.example").unwrap() == RegistryAuth::Anonymous);
        for refused in ["kept.example", "bad.example", "h.example"] {
            let error = of(refused).unwrap_err().to_string();
            assert!(error.contains(refused) && !error.contains("pass:word"), "{error}");
        }
    }
}
