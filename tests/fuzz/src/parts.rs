//! An input of several parts: texts with a separator between them that no text of this repository has.

/// ASCII's own separator of units; a corpus file with it is still a text to most tools.
pub(crate) const BETWEEN: u8 = 0x1f;

/// The parts; there is always one.
pub(crate) fn of(data: &[u8]) -> Vec<&[u8]> {
    data.split(|byte| *byte == BETWEEN).collect()
}

/// A part as text, or nothing where there is no such part or it is no text.
pub(crate) fn text<'a>(parts: &[&'a [u8]], at: usize) -> Option<&'a str> {
    std::str::from_utf8(parts.get(at)?).ok()
}
