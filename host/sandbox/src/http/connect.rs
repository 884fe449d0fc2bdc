//! The connection below a request: to an address that was checked, or through the policy's proxy.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::NotSent;
use crate::credential::Credential;
use crate::egress::{self, Proxy, Route, Target};

/// Unacknowledged bytes end the connection after this long (`TCP_USER_TIMEOUT`).
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a proxy's answer to `CONNECT`; it has nothing to tell but yes or no.
const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;

/// Opens the connection by the route, with nothing of the request sent.
pub(super) async fn open(target: &Target, route: &Route, deadline: Instant) -> Result<TcpStream, NotSent> {
    if let Some(proxy) = &route.proxy {
        return tunnel(target, route, proxy, deadline).await;
    }
    let resolved = target.addresses(&route.resolver, route.allow_private);
    let addresses = timeout_at(deadline, resolved)
        .await
        .map_err(|_| fail(target, "the name was not resolved in time".to_owned()))??;
    first(target, addresses, deadline).await
}

fn fail(target: &Target, why: String) -> NotSent {
    NotSent::Connect { host: target.host.clone(), why }
}

/// Connects to the first checked address that answers.
async fn first(target: &Target, addresses: Vec<SocketAddr>, deadline: Instant) -> Result<TcpStream, NotSent> {
    let mut last = "no address".to_owned();
    for address in addresses {
        match timeout_at(deadline, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                prepare(&stream).map_err(|error| fail(target, error.to_string()))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => return Err(fail(target, "no connection in time".to_owned())),
        }
    }
    Err(fail(target, last))
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(TCP_USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX),
    )?;
    Ok(())
}

/// Has the proxy connect to the target. It learns host and port, and of an https request nothing else.
async fn tunnel(target: &Target, route: &Route, proxy: &Proxy, deadline: Instant) -> Result<TcpStream, NotSent> {
    target.check_unseen(route.allow_private)?;
    // The operator named it, and plain http goes to private addresses only.
    let place = egress::target(&proxy.url, true)?;
    let resolved = place.addresses(&route.resolver, true);
    let addresses = timeout_at(deadline, resolved)
        .await
        .map_err(|_| fail(&place, "the proxy's name was not resolved in time".to_owned()))??;
    let mut stream = first(&place, addresses, deadline).await?;
    let credential = match &proxy.credential {
        Some(usage) => Some(shown(usage).await.map_err(|why| fail(&place, why))?),
        None => None,
    };
    let asked = timeout_at(deadline, ask(&mut stream, target, credential.as_ref())).await;
    let asked = asked.map_err(|_| fail(&place, "the proxy did not answer in time".to_owned()))?;
    asked.map_err(|why| fail(&place, format!("the proxy made no tunnel to {}: {why}", target.host)))?;
    Ok(stream)
}

async fn shown(usage: &crate::policy::CredentialUse) -> Result<HeaderValue, String> {
    let credential = Credential::read(usage).await.map_err(|error| error.to_string())?;
    credential.header().map(|(_, value)| value).map_err(|error| error.to_string())
}

async fn ask(stream: &mut TcpStream, target: &Target, credential: Option<&HeaderValue>) -> Result<(), String> {
    let authority = target.with_port();
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    if let Some(credential) = credential {
        request.extend(b"Proxy-Authorization: ");
        request.extend(credential.as_bytes());
        request.extend(b"\r\n");
    }
    request.extend(b"\r\n");
    stream.write_all(&request).await.map_err(|error| error.to_string())?;
    accepted(&head(stream).await?)
}

/// The proxy's answer, to its last byte and no further: what follows is the endpoint's.
async fn head(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= PROXY_HEAD_BYTES_MAX {
            return Err("its answer is too long".to_owned());
        }
        head.push(stream.read_u8().await.map_err(|error| error.to_string())?);
    }
    Ok(head)
}

/// Any 2xx is a yes. The text of a no is not repeated: it may hold what the proxy was shown.
fn accepted(head: &[u8]) -> Result<(), String> {
    let status = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|text| text.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(status) => Err(format!("status {status}")),
        None => Err("what it answered is not HTTP".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for yes in ["HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200 OK\r\nVia: x\r\n\r\n"] {
            assert_eq!(accepted(yes.as_bytes()), Ok(()), "{yes}");
        }
        for no in ["HTTP/1.1 407 Who\r\n\r\n", "HTTP/1.1 100 C\r\n\r\n", "HTTP/2 200\r\n\r\n", "", "SSH-2.0-x\r\n\r\n"]
        {
            assert!(accepted(no.as_bytes()).is_err(), "{no}");
        }
    }
}
