//! Frames on a socket: a length, a kind, and a body that is read strictly.
//!
//! Whatever is wrong with a frame is [`Malformed`], and the process that sent it is not listened to any more.

/// Bytes of the length that precedes a frame.
pub(super) const LENGTH_BYTES: usize = 4;
/// Bytes that are read at once, and the buffer that is kept between frames.
const READ_BYTES: usize = 64 << 10;

/// A frame is not what can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Writes one frame.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// A number of things; more than fit in 32 bits are in no memory that a frame is made of.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What was written after the length and the kind.
    pub(super) fn body(&self) -> &[u8] {
        self.0.get(LENGTH_BYTES + 1..).unwrap_or_default()
    }

    /// The whole frame.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
        self.0[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// Reads one frame's body.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("a frame is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed("a frame is cut off"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a truth is neither")),
        }
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of things of which each takes at least a byte: never more than bytes are left.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > self.0.len() { Err(Malformed("more is counted than is there")) } else { Ok(count) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.count()?;
        self.take(count)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// The frame must end here.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("a frame is too long for what it says")) }
    }
}

/// Bytes that came, until they are whole frames of a bounded length.
pub(super) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    frame_bytes_max: usize,
}

impl Incoming {
    pub(super) fn new(frame_bytes_max: usize) -> Self {
        Self { buffer: vec![0; READ_BYTES], start: 0, end: 0, frame_bytes_max }
    }

    /// Room for what comes next.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            // A large frame's room is given back.
            self.buffer.truncate(READ_BYTES);
            self.buffer.shrink_to(READ_BYTES);
        }
        let wanted = self.wanted().max(READ_BYTES);
        if self.buffer.len() - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            self.buffer.resize(wanted, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Bytes of the first frame with its length, if that much is known and allowed.
    fn wanted(&self) -> usize {
        match self.length() {
            Some(length) if length <= self.frame_bytes_max => LENGTH_BYTES + length + 1,
            _ => 0,
        }
    }

    fn length(&self) -> Option<usize> {
        let length = self.buffer[self.start..self.end].first_chunk::<LENGTH_BYTES>()?;
        Some(usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX))
    }

    /// So many bytes came into the room.
    pub(super) fn came(&mut self, count: usize) {
        self.end = self.buffer.len().min(self.end + count);
    }

    /// The next whole frame, without its length.
    pub(super) fn frame(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let Some(length) = self.length() else { return Ok(None) };
        if length > self.frame_bytes_max {
            return Err(Malformed("a frame is longer than any may be"));
        }
        if length == 0 {
            return Err(Malformed("a frame is empty"));
        }
        let (first, last) = (self.start + LENGTH_BYTES, self.start + LENGTH_BYTES + length);
        if last > self.end {
            return Ok(None);
        }
        self.start = last;
        Ok(Some(&self.buffer[first..last]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(kind);
        writer.raw(body);
        writer.finish()
    }

    fn feed(incoming: &mut Incoming, bytes: &[u8], at_once: usize) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut found = Vec::new();
        for piece in bytes.chunks(at_once) {
            let mut rest = piece;
            while !rest.is_empty() {
                let room = incoming.room();
                let count = room.len().min(rest.len());
                room[..count].copy_from_slice(&rest[..count]);
                incoming.came(count);
                rest = &rest[count..];
                while let Some(frame) = incoming.frame()? {
                    found.push(frame.to_vec());
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let large = vec![7; 3 * READ_BYTES];
        let bytes = [frame(1, b"ab"), frame(2, &large), frame(3, b""), frame(4, &large[..READ_BYTES])].concat();
        for at_once in [1, 3, 1000, READ_BYTES, bytes.len()] {
            let found = feed(&mut Incoming::new(1 << 20), &bytes, at_once).unwrap();
            assert_eq!(found.len(), 4, "{at_once}");
            assert_eq!(found[0], b"\x01ab");
            assert!(found[1][0] == 2 && found[1][1..] == large);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_length_alone() {
        let mut incoming = Incoming::new(100);
        let refused = feed(&mut incoming, &u32::MAX.to_le_bytes(), 4);
        assert_eq!(refused, Err(Malformed("a frame is longer than any may be")));
        assert!(incoming.buffer.len() <= READ_BYTES);
        assert!(feed(&mut Incoming::new(100), &[0; 4], 4).is_err());
    }

    #[test]
    fn a_body_is_read_strictly() {
        assert!(Reader(&[1, 0, 0]).u32().is_err());
        assert!(Reader(&[2]).bool().is_err());
        assert!(Reader(&[255, 255, 255, 255, 0]).bytes().is_err());
        assert!(Reader(&[1, 0, 0, 0, 0xff]).text().is_err());
        assert!(Reader(&[0]).end().is_err());
        assert_eq!(Reader(&[2, 0, 0, 0, b'o', b'k']).text(), Ok("ok".to_owned()));
    }
}
