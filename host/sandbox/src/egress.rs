//! Where a request may go: the target of a URL and the addresses it may connect to.
//!
//! Addresses are checked before a connection is made and the connection goes to exactly the
//! address that was checked, so a name cannot change its meaning in between (DNS rebinding).

mod dns;
mod resolver;
mod route;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use url::{Host, Url};

pub use resolver::Resolver;
pub use route::{Proxy, Route};

/// Addresses of one name that are tried; a name with more is no provider that we know.
const ADDRESSES_MAX: usize = 16;

/// Why a request may not go where it was to go. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The URL is not one that the host sends to.
    #[error("the URL {url} cannot be used: {why}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name has no address.
    #[error("the name {host} cannot be resolved: {why}")]
    Name {
        /// The name asked for.
        host: String,
        /// What the resolver said.
        why: String,
    },
    /// One of the name's addresses is not public and the policy does not name it.
    #[error("{host} has the address {address}, which is {kind}; the policy does not allow it")]
    Address {
        /// The name or literal asked for.
        host: String,
        /// The refused address.
        address: IpAddr,
        /// Which kind of address it is.
        kind: &'static str,
    },
}

/// A checked target of one request.
#[derive(Debug, Clone)]
pub struct Target {
    /// True for `https`.
    pub tls: bool,
    /// Host name or literal, as for the certificate.
    pub host: String,
    /// Port, explicit or the scheme's.
    pub port: u16,
    /// The `Host` header's value.
    pub authority: String,
    /// Path and query, in origin form.
    pub path: String,
    literal: Option<IpAddr>,
}

/// Takes a URL apart and refuses what has no place in a request of the host's.
///
/// # Errors
/// [`EgressError::Url`] for another scheme, user information, a fragment or a missing host, and
/// for plain `http` unless private addresses are allowed.
pub fn target(text: &str, allow_private: bool) -> Result<Target, EgressError> {
    let fail = |why| EgressError::Url { url: text.to_owned(), why };
    let url = Url::parse(text).map_err(|_| fail("it is not a URL"))?;
    let tls = match url.scheme() {
        "https" => true,
        "http" if allow_private => false,
        "http" => return Err(fail("plain http is for private addresses that the policy allows")),
        _ => return Err(fail("its scheme is not https")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(fail("it carries user information"));
    }
    if url.fragment().is_some() {
        return Err(fail("it carries a fragment"));
    }
    let (host, literal) = match url.host() {
        Some(Host::Domain(name)) if !name.is_empty() => (name.trim_end_matches('.').to_owned(), None),
        Some(Host::Ipv4(ip)) => (ip.to_string(), Some(IpAddr::V4(ip))),
        Some(Host::Ipv6(ip)) => (ip.to_string(), Some(IpAddr::V6(ip))),
        _ => return Err(fail("it has no host")),
    };
    let port = url.port_or_known_default().filter(|port| *port != 0).ok_or_else(|| fail("it has no port"))?;
    let authority = url.authority().to_owned();
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    Ok(Target { tls, host, port, authority, path, literal })
}

impl Target {
    /// Resolves the target and checks every address; one bad address refuses them all. The resolver is asked once;
    /// what it says is checked, and that alone is connected to.
    ///
    /// # Errors
    /// [`EgressError::Name`] when there is no address, [`EgressError::Address`] for a refused one.
    pub async fn addresses(&self, resolver: &Resolver, allow_private: bool) -> Result<Vec<SocketAddr>, EgressError> {
        let found = match self.literal {
            Some(ip) => vec![ip],
            None => {
                resolver.resolve(&self.host).await.map_err(|why| EgressError::Name { host: self.host.clone(), why })?
            }
        };
        for address in &found {
            self.check(*address, allow_private)?;
        }
        Ok(found.into_iter().take(ADDRESSES_MAX).map(|address| SocketAddr::new(address, self.port)).collect())
    }

    /// Host and port, as a proxy is asked for them.
    pub(crate) fn with_port(&self) -> String {
        match self.literal {
            Some(ip) => SocketAddr::new(ip, self.port).to_string(),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    /// What can be said of a target that a proxy connects to: its address, where the URL has one.
    ///
    /// # Errors
    /// [`EgressError::Address`] for a refused literal; [`EgressError::Url`] for plain http to a name, since
    /// nobody here sees where it would go.
    pub(crate) fn check_unseen(&self, allow_private: bool) -> Result<(), EgressError> {
        match self.literal {
            Some(address) => self.check(address, allow_private),
            None if self.tls => Ok(()),
            None => Err(EgressError::Url {
                url: format!("http://{}", self.authority),
                why: "plain http goes through a proxy to a private address only",
            }),
        }
    }

    fn check(&self, address: IpAddr, allow_private: bool) -> Result<(), EgressError> {
        match not_public(address) {
            // `allow-private` is not a leave to send a secret over the internet in the clear.
            None if !self.tls => Err(EgressError::Url {
                url: format!("http://{}", self.authority),
                why: "plain http is for private addresses that the policy allows",
            }),
            Some(kind) if !(allow_private && kind.may_be_allowed()) => {
                Err(EgressError::Address { host: self.host.clone(), address, kind: kind.name() })
            }
            _ => Ok(()),
        }
    }
}

/// Kinds of addresses that are not the public internet's unicast ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotPublic {
    Loopback,
    Private,
    LinkLocal,
    Metadata,
    Reserved,
    Multicast,
    Translated,
}

impl NotPublic {
    /// `allow-private` opens loopback and private networks only; a cloud's metadata service hands
    /// out credentials, and the rest is no place for a provider.
    fn may_be_allowed(self) -> bool {
        matches!(self, Self::Loopback | Self::Private)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a metadata service",
            Self::Reserved => "reserved",
            Self::Multicast => "multicast",
            Self::Translated => "a translated IPv4 address",
        }
    }
}

fn not_public(address: IpAddr) -> Option<NotPublic> {
    match address {
        IpAddr::V4(ip) => not_public_v4(ip),
        IpAddr::V6(ip) => not_public_v6(ip),
    }
}

/// IANA IPv4 special-purpose address registry (RFC 6890 and its updates).
fn not_public_v4(ip: Ipv4Addr) -> Option<NotPublic> {
    match ip.octets() {
        [127, ..] => Some(NotPublic::Loopback),
        [10, ..] | [192, 168, ..] => Some(NotPublic::Private),
        [172, second, ..] if (16..32).contains(&second) => Some(NotPublic::Private),
        [169, 254, 169, 254] | [100, 100, 100, 200] | [168, 63, 129, 16] => Some(NotPublic::Metadata),
        [169, 254, ..] => Some(NotPublic::LinkLocal),
        [100, second, ..] if (64..128).contains(&second) => Some(NotPublic::Private),
        [0, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] => Some(NotPublic::Reserved),
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => Some(NotPublic::Reserved),
        [224..=239, ..] => Some(NotPublic::Multicast),
        [240..=255, ..] => Some(NotPublic::Reserved),
        _ => None,
    }
}

/// IANA IPv6 special-purpose address registry. Every form that carries an IPv4 address is refused
/// whatever that address is: a provider that is reachable by IPv4 is reached by IPv4.
fn not_public_v6(ip: Ipv6Addr) -> Option<NotPublic> {
    if ip == Ipv6Addr::LOCALHOST {
        return Some(NotPublic::Loopback);
    }
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(NotPublic::Reserved),
        [0, 0, 0, 0, 0, _, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(NotPublic::Translated),
        [0x64, 0xff9b, ..] | [0x2002, ..] | [0x2001, 0, ..] => Some(NotPublic::Translated),
        [0xfd00, 0xec2, ..] | [0xfd20, 0xce, ..] => Some(NotPublic::Metadata),
        [0x100, 0, ..] | [0x2001, 0xdb8, ..] | [0x3fff, ..] | [0x5f00, ..] => Some(NotPublic::Reserved),
        [0x2001, second, ..] if second < 0x200 => Some(NotPublic::Reserved),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some(NotPublic::Private),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some(NotPublic::LinkLocal),
        [first, ..] if first & 0xff00 == 0xff00 => Some(NotPublic::Multicast),
        [first, ..] if first & 0xe000 != 0x2000 => Some(NotPublic::Reserved),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<NotPublic> {
        not_public(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_pass() {
        for ip in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert_eq!(kind(ip), None, "{ip}");
        }
    }

    #[test]
    fn special_addresses_are_named() {
        for (ip, want) in [
            ("127.0.0.53", NotPublic::Loopback),
            ("::1", NotPublic::Loopback),
            ("10.1.2.3", NotPublic::Private),
            ("172.31.255.255", NotPublic::Private),
            ("192.168.0.1", NotPublic::Private),
            ("100.64.0.1", NotPublic::Private),
            ("fd12::1", NotPublic::Private),
            ("169.254.169.254", NotPublic::Metadata),
            ("100.100.100.200", NotPublic::Metadata),
            ("fd00:ec2::254", NotPublic::Metadata),
            ("169.254.1.1", NotPublic::LinkLocal),
            ("fe80::1", NotPublic::LinkLocal),
            ("0.0.0.0", NotPublic::Reserved),
            ("255.255.255.255", NotPublic::Reserved),
            ("224.0.0.1", NotPublic::Multicast),
            ("ff02::1", NotPublic::Multicast),
            ("::ffff:1.1.1.1", NotPublic::Translated),
            ("::127.0.0.1", NotPublic::Translated),
            ("::ffff:0:7f00:1", NotPublic::Translated),
            ("64:ff9b::101:101", NotPublic::Translated),
            ("64:ff9b::7f00:1", NotPublic::Translated),
            ("64:ff9b:1::a00:1", NotPublic::Translated),
            ("2002:7f00:1::", NotPublic::Translated),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", NotPublic::Translated),
            ("fd20:ce::254", NotPublic::Metadata),
            ("168.63.129.16", NotPublic::Metadata),
            ("0.1.2.3", NotPublic::Reserved),
            ("192.0.0.192", NotPublic::Reserved),
            ("192.0.2.1", NotPublic::Reserved),
            ("192.88.99.1", NotPublic::Reserved),
            ("198.18.0.1", NotPublic::Reserved),
            ("198.19.255.255", NotPublic::Reserved),
            ("198.51.100.1", NotPublic::Reserved),
            ("203.0.113.1", NotPublic::Reserved),
            ("240.0.0.1", NotPublic::Reserved),
            ("239.255.255.255", NotPublic::Multicast),
            ("100.127.255.255", NotPublic::Private),
            ("::", NotPublic::Reserved),
            ("100::1", NotPublic::Reserved),
            ("2001:2::1", NotPublic::Reserved),
            ("2001:db8::1", NotPublic::Reserved),
            ("3fff::1", NotPublic::Reserved),
            ("fec0::1", NotPublic::Reserved),
            ("febf::1", NotPublic::LinkLocal),
            ("fdff::1", NotPublic::Private),
            ("ff0e::1", NotPublic::Multicast),
            ("4000::1", NotPublic::Reserved),
        ] {
            assert_eq!(kind(ip), Some(want), "{ip}");
        }
    }

    #[test]
    fn urls_that_hide_something_are_refused() {
        for url in [
            "ftp://a.example/",
            "https://user@a.example/",
            "https://u:p@a.example/",
            "https://a.example/#x",
            "http://a.example/",
            "not a url",
            "https://a.example:0/",
            "https://[fe80::1%25eth0]/",
        ] {
            assert!(target(url, false).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn plain_http_never_goes_to_a_public_address() {
        let public = target("http://93.184.216.34/", true).unwrap();
        assert!(matches!(public.addresses(&Resolver::default(), true).await, Err(EgressError::Url { .. })));
        let private = target("http://127.0.0.1:1/", true).unwrap();
        assert!(private.addresses(&Resolver::default(), true).await.is_ok());
    }

    #[tokio::test]
    async fn numeric_forms_of_loopback_are_still_loopback() {
        for url in [
            "https://127.1/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://[::ffff:127.0.0.1]/",
            "https://127.0.0.1./",
        ] {
            let Ok(target) = target(url, false) else { continue };
            assert!(target.addresses(&Resolver::default(), false).await.is_err(), "{url}");
        }
        let mapped = target("https://[::ffff:127.0.0.1]/", true).unwrap();
        assert!(mapped.addresses(&Resolver::default(), true).await.is_err(), "mapped forms stay refused");
    }
}
