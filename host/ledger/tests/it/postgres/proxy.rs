//! Stands between a host and the database, and cuts connections: before a request gets through, or after it did
//! and before its answer does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BUFFER_BYTES: usize = 256 * 1024;
/// By then a statement that got through is committed.
const COMMITTED_AFTER: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct Cuts {
    /// One request in so many is cut; 0 for none.
    pub(crate) one_in: AtomicU32,
    pub(crate) before: AtomicU32,
    pub(crate) after: AtomicU32,
}

/// Listens; the port.
pub(crate) async fn start(port: u16, cuts: Arc<Cuts>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay(client, port, Arc::clone(&cuts)));
        }
    });
    own
}

async fn relay(mut client: TcpStream, port: u16, cuts: Arc<Cuts>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut asked, mut answered) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                let one_in = cuts.one_in.load(Ordering::Relaxed);
                let cut = one_in > 0 && rand::random::<u32>().is_multiple_of(one_in);
                if cut && rand::random() {
                    cuts.before.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                if server.write_all(&asked[..count]).await.is_err() {
                    return;
                }
                if cut {
                    cuts.after.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(COMMITTED_AFTER).await;
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
