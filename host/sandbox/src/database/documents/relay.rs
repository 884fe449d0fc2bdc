//! A socket of ours for the driver, which leads to the one address that was checked, and nowhere else.
//!
//! The driver would resolve the name again at each connection and check the certificate by its own
//! rules. So it gets a path in a folder that only this user can enter; each connection to it is one to
//! the checked address, with the same roots and the same cap as every other database.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::database::reach::{self, Capped};
use crate::database::{DatabaseError, Session};

/// A listening socket; dropping it ends it and takes the folder away.
pub(super) struct Relay {
    folder: PathBuf,
    socket: PathBuf,
    serving: JoinHandle<()>,
}

impl Relay {
    /// Opens the socket. That the server can be reached is tried at once, so that its failure is told as it is.
    pub(super) async fn open(session: &Session) -> Result<Self, DatabaseError> {
        let failed = |error: std::io::Error| DatabaseError::NotSetUp(format!("no socket for the driver: {error}"));
        let first = reach::connect(session).await?;
        let folder = std::env::temp_dir().join(format!("oncegate-{:032x}", rand::random::<u128>()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let socket = folder.join("db");
        let listener = UnixListener::bind(&socket);
        let listener = listener.inspect_err(|_| remove(&folder)).map_err(failed)?;
        let session = session.clone();
        let serving = tokio::spawn(async move { serve(listener, session, first).await });
        Ok(Self { folder, socket, serving })
    }

    /// Where the driver connects to.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        tracing::warn!(%error, folder = %folder.display(), "a folder of a lookup was left behind");
    }
}

/// Connects each of the driver's connections; the first has its way already.
async fn serve(listener: UnixListener, session: Session, first: Capped) {
    let session = Arc::new(session);
    let mut ready = Some(first);
    while let Ok((driver, _)) = listener.accept().await {
        let (session, ready) = (session.clone(), ready.take());
        tokio::spawn(async move {
            if let Err(error) = lead(driver, &session, ready).await {
                tracing::debug!(%error, "a connection of the driver ended");
            }
        });
    }
}

async fn lead(driver: UnixStream, session: &Session, ready: Option<Capped>) -> Result<(), DatabaseError> {
    let stream = match ready {
        Some(stream) => stream,
        None => reach::connect(session).await?,
    };
    if session.grant.rule.plain {
        return join(driver, stream).await;
    }
    let unreachable = |error: &dyn std::fmt::Display| DatabaseError::Unreachable(error.to_string());
    let name = ServerName::try_from(session.grant.address.host.clone()).map_err(|error| unreachable(&error))?;
    let connector = TlsConnector::from(reach::tls(session).await?);
    let stream = connector.connect(name, stream).await.map_err(|error| {
        tracing::warn!(%error, "TLS with a document database could not be set up");
        unreachable(&error)
    })?;
    join(driver, stream).await
}

async fn join(mut driver: UnixStream, mut server: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), DatabaseError> {
    let joined = copy_bidirectional(&mut driver, &mut server).await;
    joined.map(drop).map_err(|error| DatabaseError::Unreachable(error.to_string()))
}
