//! A file without a name that nobody can change any more: how compiled code gets into a runner.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncegate_contract::EffectClass;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::load::Export;

/// Bytes that are read or written at once.
const PIECE_BYTES: usize = 1 << 20;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A component's compiled code, ready for runners.
pub(crate) struct Sealed {
    /// What the runners of this process know it by.
    pub(super) id: u32,
    pub(super) file: Arc<OwnedFd>,
    pub(super) bytes: u64,
    pub(super) class: EffectClass,
    pub(super) exports: Vec<Export>,
    /// Of the component.
    pub(super) digest: [u8; 32],
}

impl Sealed {
    /// Seals code that this process verified.
    pub(super) fn new(
        code: &[u8],
        class: EffectClass,
        exports: Vec<Export>,
        digest: [u8; 32],
    ) -> std::io::Result<Self> {
        let file = file("oncegate-code")?;
        write(&file, code)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, file: Arc::new(file), bytes: code.len() as u64, class, exports, digest })
    }
}

/// A file in memory.
pub(super) fn file(name: &str) -> std::io::Result<OwnedFd> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
}

/// Writes from where the file is to its end.
pub(super) fn write(file: impl AsFd, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::write(&file, &bytes[..bytes.len().min(PIECE_BYTES)])?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Reads from the file's begin, at most so many bytes.
pub(super) fn read(file: impl AsFd, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let mut piece = vec![0; PIECE_BYTES.min(max)];
    while bytes.len() < max {
        let want = piece.len().min(max - bytes.len());
        let count = rustix::io::pread(&file, &mut piece[..want], bytes.len() as u64)?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_code_cannot_be_changed_by_whoever_has_it() {
        let code = vec![7; PIECE_BYTES + 3];
        let sealed = Sealed::new(&code, EffectClass::None, Vec::new(), [0; 32]).unwrap();
        assert_eq!(read(&*sealed.file, u64::MAX).unwrap(), code);
        assert!(rustix::io::pwrite(&*sealed.file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&*sealed.file, 0).is_err());
    }
}
