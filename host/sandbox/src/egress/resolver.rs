//! Who tells the addresses of names: what the policy pins, the name server that it names, or the system.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::dns;

/// A name that takes longer is not resolved; the connection's own deadline may be shorter.
const RESOLVE_WITHIN: Duration = Duration::from_secs(5);
/// Questions to the system at once. It cannot be told to stop, so one that hangs keeps its thread; more than
/// so many threads are never lent to it.
const SYSTEM_QUESTIONS_MAX: usize = 32;
/// The policy's `[resolver]`. The default asks the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolver {
    /// `server`: this name server is asked, and no other.
    pub server: Option<SocketAddr>,
    /// `hosts`: names whose addresses the policy itself says. They are checked like any others.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
}

impl Resolver {
    /// The addresses of a name, in the order in which they are to be tried; at least one.
    ///
    /// # Errors
    /// Why there is none: nobody knows the name, or the answer took too long.
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if let Some(pinned) = self.hosts.get(&name) {
            return Ok(pinned.clone());
        }
        let asked = async {
            match self.server {
                Some(server) => dns::resolve(server, &name).await,
                None => system(name).await,
            }
        };
        let found = timeout(RESOLVE_WITHIN, asked).await.map_err(|_| "no answer in time".to_owned())??;
        if found.is_empty() { Err("it has no address".to_owned()) } else { Ok(found) }
    }
}

async fn system(name: String) -> Result<Vec<IpAddr>, String> {
    static TURNS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    let turns = TURNS.get_or_init(|| Arc::new(Semaphore::new(SYSTEM_QUESTIONS_MAX)));
    let turn = Arc::clone(turns).acquire_owned().await.map_err(|error| error.to_string())?;
    let asked = tokio::task::spawn_blocking(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        drop(turn);
        found.map(|found| found.map(|address| address.ip()).collect::<Vec<_>>())
    });
    let mut found = asked.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pinned_name_is_asked_of_nobody() {
        let pinned: IpAddr = "93.184.216.34".parse().unwrap();
        let hosts = [("pay.example".to_owned(), vec![pinned])].into();
        // Nobody answers there.
        let resolver = Resolver { server: Some("127.0.0.1:9".parse().unwrap()), hosts };
        assert_eq!(resolver.resolve("Pay.Example.").await, Ok(vec![pinned]));
        assert!(resolver.resolve("shop.example").await.is_err());
    }

    #[tokio::test]
    async fn the_system_knows_itself() {
        let found = Resolver::default().resolve("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
