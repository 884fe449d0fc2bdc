//! What a caller says that its trace is: W3C Trace Context, read strictly, since anybody may say anything.

/// A span of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    /// Whether the caller keeps the trace.
    pub(super) is_sampled: bool,
}

impl Parent {
    /// None where it is not well formed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let [version]: [u8; 1] = hex(parts.next()?)?;
        let (trace, id): ([u8; 16], [u8; 8]) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let [flags]: [u8; 1] = hex(parts.next()?)?;
        let has_more = parts.next().is_some();
        // Later versions may have more behind what this one has.
        let is_known = version != 0xff && !(version == 0 && has_more);
        (is_known && trace != [0; 16] && id != [0; 8]).then_some(Self { trace, id, is_sampled: flags & 1 == 1 })
    }
}

/// Lower-case digits, just so many.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_well_formed_is_read() {
        let parent = Parent::parse(GOOD).unwrap();
        assert_eq!((parent.trace[15], parent.id[0], parent.is_sampled), (0x9c, 0xb7, true));
        assert!(!Parent::parse(&GOOD.replace("-01", "-02")).unwrap().is_sampled);
        assert!(Parent::parse(&format!("cc{}-more", &GOOD[2..])).is_some());
    }

    #[test]
    fn nothing_else_is() {
        let zeros = GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let no_id = GOOD.replace("b7ad6b7169203331", &"0".repeat(16));
        let wrong =
            ["", "00", "-", &GOOD[..54], &GOOD.to_uppercase(), &format!("{GOOD}-more"), &format!("ff{}", &GOOD[2..])];
        let long = "0".repeat(1 << 20);
        for wrong in wrong.into_iter().chain([zeros.as_str(), &no_id, &long, "00-é-é-é", &format!(" {GOOD}")]) {
            assert_eq!(Parent::parse(wrong), None, "{wrong}");
        }
    }
}
