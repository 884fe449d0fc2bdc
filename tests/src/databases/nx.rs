//! A server that speaks MongoDB's protocol and that we did not write, from PyPI: documents kept in SQLite.
//!
//! It is no MongoDB: it has no logins, and fewer stages. What it shows is that the commands are real ones.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

use super::{free_port, listens, run, serve, wait};
use crate::python;

const PACKAGE: &str = "nx-27017==0.8.1";

/// Puts documents in, as a program of the application's would.
const INSERT: &str = "import json, sys, pymongo, bson.json_util as u\n\
    client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True)\n\
    client[sys.argv[2]][sys.argv[3]].insert_many(u.loads(sys.argv[4]))\n";
/// Counts them.
const COUNT: &str = "import sys, pymongo\n\
    client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True)\n\
    print(sorted((name, client[sys.argv[2]][name].count_documents({})) for name in client[sys.argv[2]].list_collection_names()))\n";

/// A running server.
pub struct Nx {
    _folder: TempDir,
    python: std::path::PathBuf,
    port: u16,
}

impl Nx {
    /// Installs and starts one.
    ///
    /// # Errors
    /// There is no Python, no registry, or it does not start.
    pub fn start() -> Result<Self> {
        let python = python::install("venv-nx", PACKAGE)?;
        let folder = tempfile::Builder::new().prefix("oncegate-nx-").tempdir()?;
        let port = free_port()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let main = "from nx_27017.nx_27017 import main; main()";
        let mut words = vec![python.display().to_string(), "-c".to_owned(), main.to_owned()];
        words.extend(["--port".to_owned(), port.to_string(), "--data-dir".to_owned(), path("data")]);
        words.extend(["--log-file".to_owned(), path("nx.log"), "--pid-file".to_owned(), path("pid")]);
        let log = folder.path().join("log");
        serve("", &log, words)?;
        wait(Path::new(&log), || listens(port))?;
        Ok(Self { _folder: folder, python, port })
    }

    /// Its port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Puts documents, a list in extended JSON, into a collection.
    ///
    /// # Errors
    /// The server refuses.
    pub fn insert(&self, database: &str, collection: &str, documents: &str) -> Result<()> {
        let port = self.port.to_string();
        run(Command::new(&self.python).args(["-c", INSERT, &port, database, collection, documents])).map(drop)
    }

    /// All collections with the number of their documents.
    ///
    /// # Errors
    /// The server refuses.
    pub fn counts(&self, database: &str) -> Result<String> {
        run(Command::new(&self.python).args(["-c", COUNT, &self.port.to_string(), database]))
    }
}
