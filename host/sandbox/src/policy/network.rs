//! The policy's words on the network: `[resolver]`, and `ca` and `proxy` of an endpoint.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use super::parse::base_url;
use super::reader::{Reader, Table};
use crate::egress::Resolver;

/// A name server's port.
const DNS_PORT: u16 = 53;

/// `[resolver]`: `server` and `hosts`.
pub(super) fn resolver<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Arc<Resolver> {
    let Some(table) = reader.table(root, "resolver") else { return Arc::default() };
    reader.only(&table, &["server", "hosts"], &[]);
    let server = reader.string(&table, "server").and_then(|text| {
        let plain = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT));
        let server = text.parse().or(plain).ok();
        if server.is_none() {
            reader.bad(
                &table,
                "server",
                "expected the address of a name server, such as \"10.0.0.2\" or \"[::1]:5353\"",
            );
        }
        server
    });
    Arc::new(Resolver { server, hosts: hosts(reader, &table) })
}

/// `hosts."pay.example" = ["93.184.216.34"]`, in a table of its own or inline.
fn hosts<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> BTreeMap<String, Vec<IpAddr>> {
    let Some(table) = reader.table(table, "hosts") else { return BTreeMap::new() };
    let names: Vec<String> = reader.keys(&table);
    let mut hosts = BTreeMap::new();
    for name in names {
        if oncegate_contract::check_base_url(&format!("https://{name}")).is_err() || name.contains(['/', ':']) {
            reader.bad(&table, &name, "expected a host's name as it stands in a URL");
        }
        let texts = reader.strings(&table, &name).unwrap_or_default();
        match texts.iter().map(|text| text.parse().ok()).collect::<Option<Vec<IpAddr>>>() {
            Some(addresses) if !addresses.is_empty() => {
                hosts.insert(name.to_ascii_lowercase(), addresses);
            }
            _ => reader.bad(&table, &name, "expected a list of one or more IP addresses"),
        }
    }
    hosts
}

/// `ca = "/etc/oncegate/ca.pem"`.
pub(super) fn ca<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<PathBuf> {
    let path = PathBuf::from(reader.string(table, "ca")?);
    if path.is_absolute() {
        return Some(path);
    }
    reader.bad(table, "ca", "expected the absolute path of a PEM file");
    None
}

/// `proxy` and `proxy-credential`.
pub(super) fn proxy<'a>(
    reader: &mut Reader<'a>,
    table: &Table<'a>,
    egress_direct: bool,
) -> (Option<String>, Option<String>) {
    let proxy = reader.string(table, "proxy");
    if let Some(Err(why)) = proxy.map(proxy_url) {
        reader.bad(table, "proxy", why);
    }
    if proxy.is_some() && egress_direct {
        reader.bad(table, "egress", "a request through a proxy is relayed; what was not handed over may still be sent");
    }
    let credential = reader.string(table, "proxy-credential");
    if credential.is_some() && proxy.is_none() {
        reader.bad(table, "proxy-credential", "there is no `proxy` to show it to");
    }
    (proxy.map(str::to_owned), credential.map(str::to_owned))
}

fn proxy_url(text: &str) -> Result<(), String> {
    let url = base_url(text)?;
    if url.scheme() != "http" || url.path() != "/" {
        return Err("expected http://HOST:PORT of a proxy at a private or loopback address".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Policy;

    fn errors(text: &str) -> String {
        Policy::parse("p.toml", text).map_or_else(|errors| errors.to_string(), |_| String::new())
    }

    #[test]
    fn what_is_said_of_the_network_is_read() {
        let text = "[resolver]\nserver = \"10.0.0.2\"\nhosts.\"Pay.example\" = [\"93.184.216.34\", \"2606:4700::1\"]\n\
                    [endpoint.pay]\nca = \"/etc/ca.pem\"\nproxy = \"http://10.0.0.3:3128\"\nproxy-credential = \"corp\"\n";
        let policy = Policy::parse("p.toml", text).unwrap();
        assert_eq!(policy.resolver.server, Some("10.0.0.2:53".parse().unwrap()));
        assert_eq!(policy.resolver.hosts["pay.example"].len(), 2);
        let endpoint = &policy.endpoints["pay"];
        assert_eq!(endpoint.ca.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
        assert_eq!(endpoint.proxy.as_deref(), Some("http://10.0.0.3:3128"));
        assert_eq!(endpoint.proxy_credential.as_deref(), Some("corp"));
    }

    #[test]
    fn what_cannot_hold_is_refused() {
        for (text, why) in [
            ("[resolver]\nserver = \"dns.example\"\n", "resolver.server"),
            ("[resolver]\nserver = \"10.0.0.2:x\"\n", "resolver.server"),
            ("[resolver]\nsearch = \"a\"\n", "unknown key"),
            ("[resolver.hosts]\n\"a.example\" = []\n", "one or more IP addresses"),
            ("[resolver.hosts]\n\"a.example\" = [\"localhost\"]\n", "one or more IP addresses"),
            ("[resolver.hosts]\n\"https://a.example\" = [\"1.2.3.4\"]\n", "a host's name"),
            ("[endpoint.pay]\nca = \"ca.pem\"\n", "absolute path"),
            ("[endpoint.pay]\nproxy = \"https://10.0.0.3\"\n", "http://HOST:PORT"),
            ("[endpoint.pay]\nproxy = \"http://u:p@10.0.0.3:1\"\n", "user or password"),
            ("[endpoint.pay]\nproxy = \"http://10.0.0.3:1\"\negress = \"direct\"\n", "relayed"),
            ("[endpoint.pay]\nproxy-credential = \"corp\"\n", "no `proxy`"),
        ] {
            let said = errors(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
