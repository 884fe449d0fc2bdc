//! Hosts in network namespaces of their own, each on a cable that can be pulled, or that loses one direction.
//!
//! Database and provider are on two addresses of this side, the same for every host.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use super::super::chance::Chance;
use crate::databases::run;

/// A host's end of a cable.
pub struct Cable {
    space: String,
    link: String,
    number: u8,
    net: u8,
}

/// The addresses of this side.
pub struct Net {
    net: u8,
    /// One for each host.
    pub cables: Vec<Cable>,
}

/// Which way a cable fails.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// It is pulled.
    Pulled,
    /// What the host says to the database is lost; the provider is there.
    Asked,
    /// What anybody says to the host is lost, while all it says arrives.
    Answered,
}

fn ip(words: &[&str]) -> Result<()> {
    run(Command::new("ip").args(words)).map(drop)
}

/// Whether this process may make network namespaces; if not, why.
///
/// # Errors
/// It may not.
pub fn permitted() -> Result<()> {
    let space = format!("ogf-{}-t", std::process::id());
    ip(&["netns", "add", &space])?;
    ip(&["netns", "del", &space])
}

impl Net {
    /// A cable for each of so many hosts.
    ///
    /// # Errors
    /// The system does not permit it.
    pub fn new(hosts: usize) -> Result<Self> {
        static NETS: AtomicU32 = AtomicU32::new(0);
        let count = NETS.fetch_add(1, Ordering::Relaxed);
        let net = u8::try_from((std::process::id() + 37 * count) % 200)? + 20;
        let mut made = Self { net, cables: Vec::new() };
        for address in [made.database(), made.provider()] {
            ip(&["addr", "add", &format!("{address}/32"), "dev", "lo"])?;
        }
        for number in 1..=u8::try_from(hosts)? {
            made.cables.push(Cable::new(net, number)?);
        }
        Ok(made)
    }

    /// Where the database is.
    #[must_use]
    pub fn database(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.net, 0, 2)
    }

    /// Where the provider is.
    #[must_use]
    pub fn provider(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.net, 0, 1)
    }

    /// A free port there.
    ///
    /// # Errors
    /// There is none.
    pub fn free_port(&self) -> Result<u16> {
        Ok(TcpListener::bind((self.provider(), 0))?.local_addr()?.port())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.cables.clear();
        for address in [self.database(), self.provider()] {
            // It goes with the machine at the latest.
            ip(&["addr", "del", &format!("{address}/32"), "dev", "lo"]).ok();
        }
    }
}

impl Cable {
    fn new(net: u8, number: u8) -> Result<Self> {
        let name = format!("ogf{net}-{number}");
        let cable = Self { space: name.clone(), link: format!("{name}a"), number, net };
        ip(&["netns", "add", &cable.space]).context("network namespaces are for root")?;
        let far = format!("{name}b");
        ip(&["link", "add", &cable.link, "type", "veth", "peer", "name", &far, "netns", &cable.space])?;
        ip(&["addr", "add", &format!("10.{net}.{number}.1/24"), "dev", &cable.link])?;
        ip(&["link", "set", &cable.link, "up"])?;
        let inside = |words: &[&str]| ip(&[&["-n", cable.space.as_str()][..], words].concat());
        inside(&["addr", "add", &format!("{}/24", cable.host()), "dev", &far])?;
        inside(&["link", "set", "lo", "up"])?;
        inside(&["link", "set", &far, "up"])?;
        inside(&["route", "add", "default", "via", &format!("10.{net}.{number}.1")])?;
        Ok(cable)
    }

    fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.net, self.number, 2)
    }

    /// What a command of this host begins with.
    #[must_use]
    pub fn inside(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.space]
    }

    /// Something is lost from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn lose(&self, chance: &mut Chance) -> Result<Loss> {
        let losses = [Loss::Pulled, Loss::Asked, Loss::Answered];
        let loss = chance.one(&losses).copied().unwrap_or(Loss::Pulled);
        self.change(loss, "add", "down")?;
        Ok(loss)
    }

    /// It is whole again.
    ///
    /// # Errors
    /// The system refuses.
    pub fn mend(&self, loss: Loss) -> Result<()> {
        self.change(loss, "del", "up")
    }

    fn change(&self, loss: Loss, route: &str, link: &str) -> Result<()> {
        match loss {
            Loss::Pulled => ip(&["link", "set", &self.link, link]),
            Loss::Asked => {
                let database = format!("10.{}.0.2/32", self.net);
                ip(&["-n", &self.space, "route", route, "blackhole", &database])
            }
            Loss::Answered => ip(&["route", route, "blackhole", &format!("{}/32", self.host())]),
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // The other end goes with its namespace.
        ip(&["link", "del", &self.link]).ok();
        ip(&["netns", "del", &self.space]).ok();
    }
}
