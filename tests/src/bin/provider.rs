//! The fake provider as a program: `provider [ADDRESS]`, by default a free port of loopback.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result};
use oncegate_tests::provider::Provider;

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".to_owned());
    let address: SocketAddr =
        address.parse().with_context(|| format!("{address} is no address such as 127.0.0.1:8080"))?;
    let provider = Provider::listen(address)?;
    println!("listening {}", provider.url());
    loop {
        thread::park();
    }
}
