//! A prototype: a synced log in front of the same bare redb, which is behind it and catches up.
//!
//! An append is answered when its bytes, with a checksum, are in the log and the log is synced: one sync for each
//! group, no tree touched. A second thread puts what was logged into redb in larger transactions, each durable; when
//! the log outgrows its bound the callers wait, as they must where a replay has to be short. There is no replay: redb
//! does not say how far it has come, which a product would need. Looking a key up is honest: what is not in redb yet
//! is in a map. It has no rotation, no reader in other processes, and nobody has tried to tear it:
//! [`TRIED.md`](../../../TRIED.md) says why it stayed a prototype.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};

use anyhow::Result;
use async_trait::async_trait;
use sha2::{Digest, Sha256};

use super::bare::{self, Committer, Job, Write};
use super::load::Store;

/// So many groups may be in the log and not in redb: a replay of about a hundred thousand records at most.
const BEHIND_GROUPS_MAX: usize = 256;
/// Groups that share one transaction of redb.
const APPLIED_GROUPS_MAX: usize = 64;

/// The caller's end.
#[derive(Debug)]
pub struct Logged {
    jobs: Sender<Job>,
    sizes: (usize, usize),
}

impl Logged {
    /// A new log and the file behind it.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn create(folder: &Path) -> Result<Logged> {
        let mut log = Log { file: File::create(folder.join("logged.log"))?, states: HashMap::new() };
        let applied = apply_to(Committer::create(&folder.join("logged.redb"))?)?;
        let (jobs, receiver) = channel();
        std::thread::Builder::new().name("logged".to_owned()).spawn(move || {
            let mut last = 1;
            while let Some(group) = bare::group(&receiver, last) {
                last = group.len();
                let outcome = log.append(&group);
                let (mut writes, mut replies) = (Vec::new(), Vec::new());
                for (write, reply) in group {
                    writes.push(write);
                    replies.push(reply);
                }
                match outcome {
                    Ok(outcomes) => {
                        replies.into_iter().zip(outcomes).for_each(|(reply, outcome)| drop(reply.send(outcome)))
                    }
                    Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.to_string())))),
                }
                if applied.send(writes).is_err() {
                    return;
                }
            }
        })?;
        Ok(Logged { jobs, sizes: bare::sizes()? })
    }
}

fn apply_to(mut committer: Committer) -> Result<SyncSender<Vec<Write>>> {
    let (sender, groups) = sync_channel::<Vec<Write>>(BEHIND_GROUPS_MAX);
    std::thread::Builder::new().name("applied".to_owned()).spawn(move || {
        while let Ok(first) = groups.recv() {
            let mut writes = first;
            for _ in 1..APPLIED_GROUPS_MAX {
                let Ok(more) = groups.try_recv() else { break };
                writes.extend(more);
            }
            if committer.commit(writes.iter()).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

struct Log {
    file: File,
    /// What is logged of each key; the real thing would drop what redb has.
    states: HashMap<[u8; 32], bool>,
}

impl Log {
    /// Durable when this returns.
    fn append(&mut self, group: &[Job]) -> Result<Vec<Result<(), String>>> {
        let mut frame = Vec::new();
        let mut outcomes = Vec::with_capacity(group.len());
        for (write, _) in group {
            let (key, bytes, completes) = match write {
                Write::Reserve(key, bytes) => (key, bytes, false),
                Write::Complete(key, bytes) => (key, bytes, true),
            };
            if self.states.get(key).copied() != completes.then_some(false) {
                outcomes.push(Err("it is in another state".to_owned()));
                continue;
            }
            self.states.insert(*key, completes);
            frame.extend(u32::try_from(bytes.len())?.to_be_bytes());
            frame.push(u8::from(completes));
            frame.extend(key);
            frame.extend(bytes);
            outcomes.push(Ok(()));
        }
        let check = Sha256::digest(&frame);
        frame.extend_from_slice(&check);
        self.file.write_all(&frame)?;
        self.file.sync_data()?;
        Ok(outcomes)
    }
}

#[async_trait]
impl Store for Logged {
    async fn reserve(&self, key: [u8; 32]) -> Result<()> {
        bare::ask(&self.jobs, Write::Reserve(key, vec![b'r'; self.sizes.0])).await
    }

    async fn complete(&self, key: [u8; 32]) -> Result<()> {
        bare::ask(&self.jobs, Write::Complete(key, vec![b'a'; self.sizes.1])).await
    }
}
