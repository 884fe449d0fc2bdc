//! TLS by rustls: version 1.2 or 1.3, the name checked each time, no early data, nothing resumed.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use super::NotSent;
use crate::egress::Target;

/// Bytes of a policy's `ca` file; a bundle of all public roots has a quarter of it.
const CA_BYTES_MAX: u64 = 1 << 20;
/// What is spoken over it, as ALPN names it.
const HTTP: &[&[u8]] = &[b"http/1.1"];

/// Sets TLS up on the connection. `ca` replaces the public roots.
pub(super) async fn secure(
    target: &Target,
    ca: Option<&Path>,
    stream: TcpStream,
    deadline: Instant,
) -> Result<TlsStream<TcpStream>, NotSent> {
    let fail = |why: String| NotSent::Connect { host: target.host.clone(), why };
    let name = ServerName::try_from(target.host.clone()).map_err(|error| fail(error.to_string()))?;
    let config = match ca {
        Some(file) => private(file).await.map_err(|why| fail(format!("the file {}: {why}", file.display())))?,
        None => public().map_err(|error| fail(error.to_string()))?,
    };
    let connector = tokio_rustls::TlsConnector::from(config);
    match timeout_at(deadline, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(fail(format!("TLS: {error}"))),
        Err(_) => Err(fail("TLS was not set up in time".to_owned())),
    }
}

/// TLS for what speaks another protocol than HTTP, on the same terms.
pub(crate) async fn other(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let roots = match ca {
        Some(file) => roots(file).await.map_err(|why| format!("the file {}: {why}", file.display()))?,
        None => mozilla(),
    };
    trusting(roots, &[]).map_err(|error| error.to_string())
}

/// The Mozilla roots, the same on every machine.
fn mozilla() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// HTTP under the public roots.
fn public() -> Result<Arc<ClientConfig>, rustls::Error> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let config = trusting(mozilla(), HTTP)?;
    Ok(CONFIG.get_or_init(|| config).clone())
}

/// Whether a policy's `ca` file can be used.
///
/// # Errors
/// Why it cannot be.
pub async fn probe_ca(file: &Path) -> Result<(), String> {
    roots(file).await.map(drop)
}

/// HTTP under the certificates of the file and no others.
async fn private(file: &Path) -> Result<Arc<ClientConfig>, String> {
    trusting(roots(file).await?, HTTP).map_err(|error| error.to_string())
}

/// The certificates of the file. It is read each time, so that a new one holds at once.
async fn roots(file: &Path) -> Result<RootCertStore, String> {
    let text = async {
        let mut bytes = Vec::new();
        tokio::fs::File::open(file).await?.take(CA_BYTES_MAX + 1).read_to_end(&mut bytes).await?;
        Ok::<_, std::io::Error>(bytes)
    };
    let pem = text.await.map_err(|error| error.to_string())?;
    if pem.len() as u64 > CA_BYTES_MAX {
        return Err("it is longer than certificates are".to_owned());
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("it holds no certificate".to_owned());
    }
    Ok(roots)
}

fn trusting(roots: RootCertStore, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // A replayed first flight would be a second effect.
    config.enable_early_data = false;
    // A resumed session would skip the look at the certificate.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
