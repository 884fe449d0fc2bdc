//! A disk that goes wrong while a program runs, or whose writes are recorded, by a small library in C
//! that is preloaded (`shim/baddisk.c`).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shim;

/// What is wrong with the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no space: writes and longer files are refused.
    Full,
    /// It was mounted again for reading only.
    ReadOnly,
    /// Writes fail.
    Write,
    /// Syncs fail, and nothing is synced.
    Sync,
    /// Syncs say that they worked, and did nothing.
    Lie,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Write => "eio-write",
            Self::Sync => "eio-sync",
            Self::Lie => "lie",
        })
    }
}

/// The disk under all files whose path holds a text, and the switch that breaks it.
#[derive(Clone, Debug)]
pub struct BadDisk {
    files: String,
    switch: PathBuf,
}

impl BadDisk {
    /// A sound one; the switch is a file in `folder`.
    pub fn new(files: &str, folder: &Path) -> Self {
        Self { files: files.to_owned(), switch: folder.join("baddisk") }
    }

    /// Puts a program on this disk.
    ///
    /// # Errors
    /// The shim cannot be compiled.
    pub fn under(&self, command: &mut Command) -> Result<()> {
        command.env("LD_PRELOAD", shim::library("baddisk")?);
        command.env("BADDISK_PATH", &self.files).env("BADDISK_SWITCH", &self.switch);
        Ok(())
    }

    /// From now on, for programs that run already too.
    ///
    /// # Errors
    /// The switch cannot be written.
    pub fn breaks(&self, fault: Fault) -> Result<()> {
        self.switch_to(&fault.to_string())
    }

    /// From a program's `first` call on that the fault can meet, and for `count` of them: 1 is the first.
    ///
    /// # Errors
    /// See [`BadDisk::breaks`].
    pub fn breaks_at(&self, fault: Fault, first: u32, count: u32) -> Result<()> {
        self.switch_to(&format!("{fault} {first} {count}"))
    }

    fn switch_to(&self, words: &str) -> Result<()> {
        // It may not have been met before.
        fs::remove_file(self.met_file()).ok();
        // Under another name first: nobody reads half a word.
        let new = self.switch.with_extension("new");
        fs::write(&new, words)?;
        Ok(fs::rename(new, &self.switch)?)
    }

    /// Whether any call has met the latest fault.
    pub fn was_met(&self) -> bool {
        self.met_file().exists()
    }

    fn met_file(&self) -> PathBuf {
        self.switch.with_extension("met")
    }

    /// The fault is gone.
    ///
    /// # Errors
    /// There was none.
    pub fn heals(&self) -> Result<()> {
        fs::remove_file(&self.switch).context("the disk was not broken")
    }
}

/// One change that a program made to its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it did.
    pub op: Op,
    /// To which file or folder.
    pub path: PathBuf,
}

/// What a program did to a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Wrote bytes at an offset.
    Write(u64, Vec<u8>),
    /// Made it so long.
    Size(u64),
    /// Synced it.
    Sync,
    /// Made it, a file.
    Create,
    /// Made it, a folder.
    Folder,
    /// Removed its name.
    Unlink,
    /// Gave it another name as well.
    Link(PathBuf),
    /// Gave it another name.
    Rename(PathBuf),
}

/// Makes a command record every change of the files whose path holds `files`.
///
/// # Errors
/// The shim cannot be compiled.
pub fn record(command: &mut Command, files: &str, trace: &Path) -> Result<()> {
    command.env("LD_PRELOAD", shim::library("baddisk")?);
    command.env("BADDISK_PATH", files).env("BADDISK_TRACE", trace);
    Ok(())
}

/// Reads what [`record`] made a command write. A last change that was cut off is left out.
///
/// # Errors
/// A line is not the shim's.
pub fn read_changes(trace: &Path) -> Result<Vec<Change>> {
    let bytes = fs::read(trace).with_context(|| format!("cannot read {}", trace.display()))?;
    let mut rest = bytes.as_slice();
    let mut changes = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end])?;
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [op, length, offset, path] = words[..] else { anyhow::bail!("not a line of the record: {line}") };
        let Some(bytes) = rest.get(end + 1..end + 1 + length.parse::<usize>()?) else { break };
        rest = &rest[end + 1 + bytes.len()..];
        let op = match op {
            "write" => Op::Write(offset.parse()?, bytes.to_vec()),
            "size" => Op::Size(offset.parse()?),
            "sync" => Op::Sync,
            "create" => Op::Create,
            "mkdir" => Op::Folder,
            "unlink" => Op::Unlink,
            "link" => Op::Link(PathBuf::from(std::str::from_utf8(bytes)?)),
            "rename" => Op::Rename(PathBuf::from(std::str::from_utf8(bytes)?)),
            other => anyhow::bail!("not an operation of the record: {other}"),
        };
        changes.push(Change { op, path: PathBuf::from(path) });
    }
    Ok(changes)
}
