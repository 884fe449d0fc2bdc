//! A disk that keeps what was synced apart from what was not, stops, and shows what could be left.

use std::sync::{Arc, Mutex};

use rand::{Rng, rngs::SmallRng, seq::SliceRandom};
use redb::StorageBackend;

/// Of so many writes between two syncs every subset is tried; of more, some.
const SUBSETS_OF_MAX: usize = 6;
/// How many are tried of what cannot be tried whole.
const CHOICES: usize = 64;
/// Torn writes tried between two syncs.
const TORN: usize = 96;
/// What a disk writes whole.
const SECTOR_BYTES: usize = 512;

/// How writes that were not synced can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Some are there, some are not.
    Lost,
    /// Some are there, the later ones before the earlier ones.
    Reordered,
    /// One of them is there in part.
    Torn,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Lost, Kind::Reordered, Kind::Torn];
}

/// What a disk could hold after it stopped.
pub(super) struct Image {
    pub(super) kind: Kind,
    pub(super) what: String,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Write {
    Bytes(u64, Vec<u8>),
    Length(u64),
}

#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) durable: Vec<u8>,
    now: Vec<u8>,
    pending: Vec<Write>,
    pub(super) syncs: u32,
    pub(super) stop_at: Option<u32>,
    pub(super) lies: bool,
    pub(super) stopped: bool,
}

fn apply(to: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Length(length) => to.resize(*length as usize, 0),
        Write::Bytes(offset, bytes) => {
            let end = *offset as usize + bytes.len();
            if to.len() < end {
                to.resize(end, 0);
            }
            to[*offset as usize..end].copy_from_slice(bytes);
        }
    }
}

impl Disk {
    pub(super) fn from(image: Vec<u8>) -> Disk {
        Disk { durable: image.clone(), now: image, ..Disk::default() }
    }

    fn write(&mut self, write: Write) -> std::io::Result<()> {
        if self.stopped {
            return Err(std::io::Error::other("the disk stopped"));
        }
        apply(&mut self.now, &write);
        self.pending.push(write);
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.syncs += 1;
        self.stopped |= self.stop_at == Some(self.syncs);
        if self.stopped {
            return Err(std::io::Error::other("the disk stopped"));
        }
        if !self.lies {
            self.pending.clear();
            self.durable = self.now.clone();
        }
        Ok(())
    }

    fn image(&self, kind: Kind, what: String, writes: &[Write]) -> Image {
        let mut bytes = self.durable.clone();
        writes.iter().for_each(|write| apply(&mut bytes, write));
        Image { kind, what, bytes }
    }

    /// What could be on the disk now: what was synced, and of the rest every subset where there are few
    /// writes, chosen ones where there are many; in another order; or with one of them torn.
    pub(super) fn images(&self, random: &mut SmallRng) -> Vec<Image> {
        let mut images = self.lost(random);
        if self.pending.len() > 1 {
            images.extend((0..CHOICES).map(|_| self.reordered(random)));
        }
        if !self.pending.is_empty() {
            images.extend((0..TORN).filter_map(|_| self.torn(random.random_range(0..self.pending.len()), random)));
        }
        images
    }

    /// One of each kind, where there is one.
    pub(super) fn some_images(&self, random: &mut SmallRng) -> Vec<Image> {
        let none = self.image(Kind::Lost, "no write".to_owned(), &[]);
        if self.pending.is_empty() {
            return vec![none];
        }
        let torn = (0..8).find_map(|_| self.torn(random.random_range(0..self.pending.len()), random));
        let chosen = self.subset(random.random(), "some");
        [none, chosen, self.reordered(random)].into_iter().chain(torn).collect()
    }

    fn lost(&self, random: &mut SmallRng) -> Vec<Image> {
        let count = self.pending.len();
        if count <= SUBSETS_OF_MAX {
            return (0..1 << count).map(|mask| self.subset(mask, "subset")).collect();
        }
        let beginning = random.random_range(0..count);
        let mut images = vec![
            self.image(Kind::Lost, "no write".to_owned(), &[]),
            self.image(Kind::Lost, "all writes".to_owned(), &self.pending),
            self.image(Kind::Lost, format!("the first {beginning}"), &self.pending[..beginning]),
        ];
        images.extend((0..CHOICES).map(|_| self.subset(random.random(), "choice")));
        images
    }

    fn subset(&self, mask: u64, what: &str) -> Image {
        let chosen = self.pending.iter().enumerate().filter(|(index, _)| mask >> (index % 64) & 1 == 1);
        let chosen: Vec<Write> = chosen.map(|(_, write)| write.clone()).collect();
        self.image(Kind::Lost, format!("{what} {mask:b} of {}", self.pending.len()), &chosen)
    }

    fn reordered(&self, random: &mut SmallRng) -> Image {
        let mut chosen: Vec<Write> = self.pending.iter().filter(|_| random.random_ratio(3, 4)).cloned().collect();
        chosen.shuffle(random);
        self.image(Kind::Reordered, format!("{} writes in another order", chosen.len()), &chosen)
    }

    /// The write at `index` ends at a sector, and what came after it is there or not.
    fn torn(&self, index: usize, random: &mut SmallRng) -> Option<Image> {
        let Write::Bytes(offset, bytes) = &self.pending[index] else { return None };
        let sectors = bytes.len() / SECTOR_BYTES;
        if sectors == 0 {
            return None;
        }
        let cut = random.random_range(0..=sectors) * SECTOR_BYTES;
        // The beginning is there and the end is not, or the other way round.
        let piece = match random.random() {
            true => Write::Bytes(*offset, bytes[..cut].to_vec()),
            false => Write::Bytes(*offset + cut as u64, bytes[cut..].to_vec()),
        };
        let mut chosen = self.pending[..index].to_vec();
        chosen.push(piece);
        if random.random() {
            chosen.extend_from_slice(&self.pending[index + 1..]);
        }
        Some(self.image(Kind::Torn, format!("write {index} torn at {cut}"), &chosen))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Simulated(pub(super) Arc<Mutex<Disk>>);

impl StorageBackend for Simulated {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let disk = self.0.lock().unwrap();
        let offset = offset as usize;
        let found = disk.now.get(offset..offset + out.len());
        out.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.lock().unwrap().write(Write::Length(len))
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.lock().unwrap().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.lock().unwrap().write(Write::Bytes(offset, data.to_vec()))
    }
}
