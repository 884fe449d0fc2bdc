//! Where a cell takes place: a database, what stands before it, and the hosts.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::super::scenario;
use super::super::system::System as _;
use super::fault::Fault;
use super::fleet::{Fleet, Place, Plan};
use super::net::Net;
use super::node::Node;
use super::proxy::Proxy;
use crate::provider::Provider;
use crate::provider::domains::Settings;

/// The name of the ledger's database.
const DATABASE: &str = "ledger";
/// An answer takes so long that something can go wrong meanwhile.
const LATENCY_MS: u64 = 40;
const HOUR: i64 = 3_600;

/// See the module.
pub struct Field {
    /// The hosts. They end before what they talk to does.
    pub fleet: Fleet,
    /// Before the database, where connections are spoiled.
    pub proxy: Option<Proxy>,
    /// The cables, where hosts have some.
    pub net: Option<Net>,
    /// The database, at first.
    pub primary: Node,
    /// What takes over.
    pub standby: Option<Node>,
    promoted: AtomicBool,
}

impl Field {
    /// For this fault, with so many hosts.
    ///
    /// # Errors
    /// A part of it cannot be had.
    pub fn new(fault: Fault, hosts: usize) -> Result<Self> {
        let primary = Node::start()?;
        let databases = if fault == Fault::Apart { hosts } else { 1 };
        for number in 0..databases {
            primary.database(&database(number))?;
        }
        let standby = fault.standby().map(|synchronous| primary.followed(synchronous)).transpose()?;
        let proxied = matches!(fault, Fault::Connections(_) | Fault::Everything);
        let proxy = if proxied { Some(Proxy::before(primary.port)?) } else { None };
        let net = if fault == Fault::Partitioned { Some(Net::new(hosts)?) } else { None };
        let server = server(&primary, standby.as_ref(), proxy.as_ref(), net.as_ref());
        let places = (0..hosts).map(|host| place(fault, host, &server, net.as_ref())).collect();
        let provider = net.as_ref().map(provider).transpose()?;
        let plan = Plan { name: fault.system(), places, apart: fault == Fault::Apart, provider };
        let fleet = Fleet::new(scenario::valued(), plan)?;
        fleet.provider().settings(&Settings { latency_ms: LATENCY_MS, ..Settings::default() })?;
        fleet.start_all()?;
        Ok(Self { fleet, proxy, net, primary, standby, promoted: AtomicBool::new(false) })
    }

    /// The server that takes commits.
    #[must_use]
    pub fn database(&self) -> &Node {
        let standby = self.standby.as_ref().filter(|_| self.promoted.load(Ordering::Relaxed));
        standby.unwrap_or(&self.primary)
    }

    /// The standby takes over.
    ///
    /// # Errors
    /// It refuses.
    pub fn promote(&self) -> Result<()> {
        let standby = self.standby.as_ref().context("no standby")?;
        standby.promote()?;
        self.promoted.store(true, Ordering::Relaxed);
        if let Some(proxy) = &self.proxy {
            proxy.lead_to(standby.port);
        }
        Ok(())
    }
}

fn database(number: usize) -> String {
    if number == 0 { DATABASE.to_owned() } else { format!("{DATABASE}{number}") }
}

/// Without its database's name.
fn server(primary: &Node, standby: Option<&Node>, proxy: Option<&Proxy>, net: Option<&Net>) -> String {
    match (proxy, net, standby) {
        (Some(proxy), ..) => format!("127.0.0.1:{}", proxy.port),
        (None, Some(net), _) => format!("{}:{}", net.database(), primary.port),
        (None, None, Some(standby)) => format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port),
        (None, None, None) => format!("127.0.0.1:{}", primary.port),
    }
}

fn place(fault: Fault, host: usize, server: &str, net: Option<&Net>) -> Place {
    let own = if fault == Fault::Apart { host } else { 0 };
    let cable = net.and_then(|net| net.cables.get(host));
    let inside = cable.map(|cable| cable.inside().map(str::to_owned).to_vec()).unwrap_or_default();
    let apart = matches!(fault, Fault::ClocksApart | Fault::Everything);
    let ahead = if apart { [0, HOUR, -HOUR][host % 3] } else { 0 };
    Place { server: format!("{server}/{}", database(own)), inside, ahead }
}

/// One that hosts in namespaces reach.
fn provider(net: &Net) -> Result<String> {
    let address = SocketAddr::new(IpAddr::V4(net.provider()), net.free_port()?);
    Ok(Provider::listen(address)?.url())
}
