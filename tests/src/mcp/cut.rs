//! A wire between a client and a server that a test cuts.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Passes bytes both ways until it is cut; new connections work again. Its threads end with the process.
pub struct Wire {
    address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    /// To a server at `HOST:PORT`.
    ///
    /// # Errors
    /// No port can be had.
    pub fn to(server: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (server, kept) = (server.to_owned(), Arc::clone(&open));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Whoever is not connected finds that out by itself.
                join(client, &server, &kept).ok();
            }
        });
        Ok(Self { address, open })
    }

    /// Where clients find it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ends all connections that there are; returns how many.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        // One that has ended already cannot be shut down; it is what was wanted.
        open.iter().filter(|stream| stream.shutdown(Shutdown::Both).is_ok()).count()
    }
}

fn join(client: TcpStream, server: &str, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    open.lock().unwrap_or_else(PoisonError::into_inner).extend([client.try_clone()?, server.try_clone()?]);
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            io::copy(&mut from, &mut to).ok();
            to.shutdown(Shutdown::Write).ok();
        });
    }
    Ok(())
}
