//! The wire to a registry: what is fetched is bounded while it comes and checked when it is there.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use oncegate_sandbox::describe::Description;
use oncegate_sandbox::limits::COMPONENT_BYTES_MAX;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Response, StatusCode};

use super::manifest::{MANIFEST_TYPE, Manifest, digest_of, made};
use super::{Access, pinned};
use crate::print::clean;

/// Bytes of a manifest: a few hundred, and a signature.
const MANIFEST_BYTES_MAX: usize = 64 << 10;
/// Until a connection is set up.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Between two pieces of what is fetched.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// For all of one fetch or push.
const WITHIN: Duration = Duration::from_secs(300);
/// Registries send a download on to their store, once or twice.
const REDIRECTS_MAX: usize = 3;

/// A connection to one registry.
pub(crate) struct Client {
    access: Access,
    /// For who we are, and for pushing.
    registry: oci_client::Client,
    /// For what is fetched: bounded by us.
    http: reqwest::Client,
}

impl Client {
    pub(crate) fn new(access: Access) -> anyhow::Result<Self> {
        // The library leaves it to us. One that is there already does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let protocol = if access.plain_http { ClientProtocol::Http } else { ClientProtocol::Https };
        let config = ClientConfig {
            protocol,
            connect_timeout: Some(CONNECT_WITHIN),
            read_timeout: Some(SILENT_MAX),
            platform_resolver: None,
            ..ClientConfig::default()
        };
        let registry = oci_client::Client::try_from(config).context("a client for registries cannot be made")?;
        let http = reqwest::Client::builder()
            .https_only(!access.plain_http)
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENT_MAX)
            .redirect(reqwest::redirect::Policy::limited(REDIRECTS_MAX))
            .build()
            .context("a client for registries cannot be made")?;
        Ok(Self { access, registry, http })
    }

    /// The manifest's bytes. Where the reference has a digest they are the ones that it names.
    pub(crate) async fn manifest(&self, reference: &Reference) -> anyhow::Result<Vec<u8>> {
        let wanted = reference.digest().or(reference.tag()).context("the reference has neither tag nor digest")?;
        let bytes = self.fetch(reference, &format!("manifests/{wanted}"), MANIFEST_BYTES_MAX).await?;
        if let Some(digest) = reference.digest() {
            let came = digest_of(&bytes);
            ensure!(came == digest, "the registry sent another manifest than was asked for: {came} for {digest}");
        }
        Ok(bytes)
    }

    /// The component that a manifest names.
    pub(crate) async fn component(&self, reference: &Reference, manifest: &Manifest) -> anyhow::Result<Vec<u8>> {
        let bytes = self.fetch(reference, &format!("blobs/{}", manifest.component), COMPONENT_BYTES_MAX).await?;
        let came = digest_of(&bytes);
        ensure!(
            came == manifest.component,
            "the registry sent another component than its manifest names: {came} for {}",
            manifest.component
        );
        ensure!(bytes.len() as u64 == manifest.size, "the component has another size than its manifest says");
        Ok(bytes)
    }

    async fn fetch(&self, reference: &Reference, what: &str, bytes_max: usize) -> anyhow::Result<Vec<u8>> {
        let place = format!("{}/{}", reference.resolve_registry(), reference.repository());
        let fetched = tokio::time::timeout(WITHIN, self.fetched(reference, what, bytes_max)).await;
        let fetched = fetched.unwrap_or_else(|_| bail!("it took more than {} s", WITHIN.as_secs()));
        fetched.with_context(|| format!("{what} of {place} cannot be fetched"))
    }

    async fn fetched(&self, reference: &Reference, what: &str, bytes_max: usize) -> anyhow::Result<Vec<u8>> {
        let scheme = if self.access.plain_http { "http" } else { "https" };
        let url = format!("{scheme}://{}/v2/{}/{what}", reference.resolve_registry(), reference.repository());
        let token = self.registry.auth(reference, &self.access.auth, RegistryOperation::Pull).await.map_err(said)?;
        let request = self.http.get(url).header(ACCEPT, HeaderValue::from_static(MANIFEST_TYPE));
        let request = match (&self.access.auth, token) {
            (_, Some(token)) => request.bearer_auth(token),
            (RegistryAuth::Basic(user, password), None) => request.basic_auth(user, Some(password)),
            (_, None) => request,
        };
        let response = request.send().await.map_err(reqwest::Error::without_url)?;
        bounded(found(response)?, bytes_max).await
    }

    /// Puts a component there, with its signature. Gives how it is pinned.
    pub(crate) async fn push(
        &self,
        reference: &Reference,
        description: &Description,
        bytes: Vec<u8>,
        signature: Option<&str>,
        created: &str,
    ) -> anyhow::Result<String> {
        let (config, manifest) = made(description, &bytes, signature, created)?;
        let digest = digest_of(&manifest);
        self.registry.store_auth_if_needed(reference.resolve_registry(), &self.access.auth).await;
        let push = async {
            for blob in [config, bytes] {
                let digest = digest_of(&blob);
                if !self.registry.blob_exists(reference, &digest).await.map_err(said)? {
                    self.registry.push_blob(reference, blob, &digest).await.map_err(said)?;
                }
            }
            let kind = HeaderValue::from_static(MANIFEST_TYPE);
            self.registry.push_manifest_raw(reference, manifest, kind).await.map_err(said)
        };
        let pushed = tokio::time::timeout(WITHIN, push).await;
        let pushed = pushed.unwrap_or_else(|_| bail!("it took more than {} s", WITHIN.as_secs()));
        pushed.with_context(|| format!("the component cannot be pushed to {reference}"))?;
        Ok(pinned(reference, &digest))
    }
}

fn found(response: Response) -> anyhow::Result<Response> {
    match response.status() {
        StatusCode::OK => Ok(response),
        StatusCode::NOT_FOUND => bail!("the registry has no such thing (404)"),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(refused()),
        status => bail!("the registry answered {}", status.as_u16()),
    }
}

fn refused() -> anyhow::Error {
    anyhow::anyhow!("the registry refuses us; give --registry-auth, or log in with Docker")
}

/// Reads to the end, or stops where there is more than is taken: what a length says is not asked.
async fn bounded(mut response: Response, bytes_max: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        ensure!(
            bytes.len() + piece.len() <= bytes_max,
            "it has more than {bytes_max} bytes, which is more than is taken"
        );
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// The library's error in words that come from nobody else: a registry's text may be anything.
fn said(error: oci_client::errors::OciDistributionError) -> anyhow::Error {
    use oci_client::errors::OciDistributionError as E;
    match error {
        E::AuthenticationFailure(_) | E::UnauthorizedError { .. } => refused(),
        E::RequestError(error) => match error.status() {
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => refused(),
            _ => anyhow::Error::new(error.without_url()),
        },
        E::ServerError { code, .. } => anyhow::anyhow!("the registry answered {code}"),
        other => anyhow::anyhow!("{}", clean(&other.to_string())),
    }
}
