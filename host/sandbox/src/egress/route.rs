//! By which way an endpoint is reached, as the policy says.

use std::path::PathBuf;
use std::sync::Arc;

use super::Resolver;
use crate::policy::CredentialUse;

/// The way to one endpoint.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// Whether private and loopback addresses may be connected to.
    pub allow_private: bool,
    /// `ca`: a PEM file with the certificates that may vouch for the endpoint, instead of the public ones.
    pub ca: Option<PathBuf>,
    /// `proxy`: what connects in the host's place.
    pub proxy: Option<Proxy>,
    /// Who tells addresses.
    pub resolver: Arc<Resolver>,
}

/// A proxy that is asked for a tunnel (`CONNECT`) to the endpoint.
///
/// It resolves the endpoint's name, so the checks of addresses do not hold behind it; that of the certificate does.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// Its URL: plain http at a private or loopback address.
    pub url: String,
    /// `proxy-credential`: what it is shown.
    pub credential: Option<CredentialUse>,
}
