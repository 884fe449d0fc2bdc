//! A guest's values on the wire.
//!
//! What comes from a runner is shaped as it says and bounded; whether that is what the tool's type returns is looked at
//! when it becomes JSON, as for a guest in this process.

use wasmtime::component::Val;

use super::wire::{Malformed, Reader, Writer};

/// Values that are brought from a runner: each costs the host tens of bytes, and an answer to an agent has fewer.
pub(super) const VALUES_MAX: usize = 2_000_000;
/// How deep a value may be; a WIT type that people write has a handful of levels.
const DEPTH_MAX: u32 = 100;

const BOOL: u8 = 0;
const S8: u8 = 1;
const U8: u8 = 2;
const S16: u8 = 3;
const U16: u8 = 4;
const S32: u8 = 5;
const U32: u8 = 6;
const S64: u8 = 7;
const U64: u8 = 8;
const FLOAT32: u8 = 9;
const FLOAT64: u8 = 10;
const CHAR: u8 = 11;
const STRING: u8 = 12;
const LIST: u8 = 13;
const BYTES: u8 = 14;
const RECORD: u8 = 15;
const TUPLE: u8 = 16;
const VARIANT: u8 = 17;
const ENUM: u8 = 18;
const OPTION: u8 = 19;
const RESULT: u8 = 20;
const FLAGS: u8 = 21;

/// There are more values, or of another kind, than are brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotBrought;

/// Writes values, at most so many.
pub(super) fn write_all(out: &mut Writer, values: &[Val], mut left: usize) -> Result<(), NotBrought> {
    out.count(values.len());
    values.iter().try_for_each(|value| write(out, value, &mut left))
}

fn write(out: &mut Writer, value: &Val, left: &mut usize) -> Result<(), NotBrought> {
    *left = left.checked_sub(1).ok_or(NotBrought)?;
    match value {
        Val::Bool(value) => plain(out, BOOL, &[u8::from(*value)]),
        Val::S8(value) => plain(out, S8, &value.to_le_bytes()),
        Val::U8(value) => plain(out, U8, &value.to_le_bytes()),
        Val::S16(value) => plain(out, S16, &value.to_le_bytes()),
        Val::U16(value) => plain(out, U16, &value.to_le_bytes()),
        Val::S32(value) => plain(out, S32, &value.to_le_bytes()),
        Val::U32(value) => plain(out, U32, &value.to_le_bytes()),
        Val::S64(value) => plain(out, S64, &value.to_le_bytes()),
        Val::U64(value) => plain(out, U64, &value.to_le_bytes()),
        Val::Float32(value) => plain(out, FLOAT32, &value.to_bits().to_le_bytes()),
        Val::Float64(value) => plain(out, FLOAT64, &value.to_bits().to_le_bytes()),
        Val::Char(value) => plain(out, CHAR, &u32::from(*value).to_le_bytes()),
        Val::String(text) => named(out, STRING, text),
        Val::Enum(label) => named(out, ENUM, label),
        Val::List(items) => list(out, items, left)?,
        Val::Tuple(items) => several(out, TUPLE, items, left)?,
        Val::Record(fields) => {
            out.u8(RECORD);
            out.count(fields.len());
            for (name, value) in fields {
                out.text(name);
                write(out, value, left)?;
            }
        }
        Val::Variant(case, payload) => {
            named(out, VARIANT, case);
            maybe(out, payload.as_deref(), left)?;
        }
        Val::Option(payload) => {
            out.u8(OPTION);
            maybe(out, payload.as_deref(), left)?;
        }
        Val::Result(outcome) => {
            out.u8(RESULT);
            out.bool(outcome.is_ok());
            let (Ok(payload) | Err(payload)) = outcome;
            maybe(out, payload.as_deref(), left)?;
        }
        Val::Flags(labels) => {
            out.u8(FLAGS);
            out.count(labels.len());
            labels.iter().for_each(|label| out.text(label));
        }
        // Resources, streams and the like: no tool takes or returns one.
        _ => return Err(NotBrought),
    }
    Ok(())
}

fn plain(out: &mut Writer, tag: u8, bytes: &[u8]) {
    out.u8(tag);
    out.raw(bytes);
}

fn named(out: &mut Writer, tag: u8, text: &str) {
    out.u8(tag);
    out.text(text);
}

fn list(out: &mut Writer, items: &[Val], left: &mut usize) -> Result<(), NotBrought> {
    let byte = |value: &Val| if let Val::U8(byte) = value { Some(*byte) } else { None };
    match items.iter().map(byte).collect::<Option<Vec<u8>>>() {
        Some(bytes) if !bytes.is_empty() => {
            *left = left.checked_sub(bytes.len()).ok_or(NotBrought)?;
            out.u8(BYTES);
            out.bytes(&bytes);
            Ok(())
        }
        _ => several(out, LIST, items, left),
    }
}

fn several(out: &mut Writer, tag: u8, items: &[Val], left: &mut usize) -> Result<(), NotBrought> {
    out.u8(tag);
    out.count(items.len());
    items.iter().try_for_each(|item| write(out, item, left))
}

fn maybe(out: &mut Writer, payload: Option<&Val>, left: &mut usize) -> Result<(), NotBrought> {
    out.bool(payload.is_some());
    payload.map_or(Ok(()), |payload| write(out, payload, left))
}

/// Reads values, at most so many.
pub(super) fn read_all(from: &mut Reader<'_>, max: usize) -> Result<Vec<Val>, Malformed> {
    let mut bounds = Bounds { left: max, depth: DEPTH_MAX };
    let count = from.count()?;
    (0..count).map(|_| read(from, &mut bounds)).collect()
}

struct Bounds {
    left: usize,
    depth: u32,
}

impl Bounds {
    fn take(&mut self, count: usize) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed("there are more values than may be"))?;
        Ok(())
    }
}

fn read(from: &mut Reader<'_>, bounds: &mut Bounds) -> Result<Val, Malformed> {
    bounds.take(1)?;
    bounds.depth = bounds.depth.checked_sub(1).ok_or(Malformed("a value is too deep"))?;
    let value = read_one(from, bounds)?;
    bounds.depth += 1;
    Ok(value)
}

fn read_one(from: &mut Reader<'_>, bounds: &mut Bounds) -> Result<Val, Malformed> {
    Ok(match from.u8()? {
        BOOL => Val::Bool(from.bool()?),
        S8 => Val::S8(from.u8()?.cast_signed()),
        U8 => Val::U8(from.u8()?),
        S16 => Val::S16(from.u16()?.cast_signed()),
        U16 => Val::U16(from.u16()?),
        S32 => Val::S32(from.u32()?.cast_signed()),
        U32 => Val::U32(from.u32()?),
        S64 => Val::S64(from.u64()?.cast_signed()),
        U64 => Val::U64(from.u64()?),
        FLOAT32 => Val::Float32(f32::from_bits(from.u32()?)),
        FLOAT64 => Val::Float64(f64::from_bits(from.u64()?)),
        CHAR => Val::Char(char::from_u32(from.u32()?).ok_or(Malformed("a character is none"))?),
        STRING => Val::String(from.text()?),
        ENUM => Val::Enum(from.text()?),
        LIST => Val::List(items(from, bounds)?),
        TUPLE => Val::Tuple(items(from, bounds)?),
        BYTES => {
            let bytes = from.bytes()?;
            bounds.take(bytes.len())?;
            Val::List(bytes.iter().copied().map(Val::U8).collect())
        }
        RECORD => {
            let count = from.count()?;
            let field = |_| Ok((from.text()?, read(from, bounds)?));
            Val::Record((0..count).map(field).collect::<Result<_, Malformed>>()?)
        }
        VARIANT => Val::Variant(from.text()?, payload(from, bounds)?),
        OPTION => Val::Option(payload(from, bounds)?),
        RESULT if from.bool()? => Val::Result(Ok(payload(from, bounds)?)),
        RESULT => Val::Result(Err(payload(from, bounds)?)),
        FLAGS => {
            let count = from.count()?;
            bounds.take(count)?;
            Val::Flags((0..count).map(|_| from.text()).collect::<Result<_, _>>()?)
        }
        _ => return Err(Malformed("a value is of no kind")),
    })
}

fn items(from: &mut Reader<'_>, bounds: &mut Bounds) -> Result<Vec<Val>, Malformed> {
    let count = from.count()?;
    (0..count).map(|_| read(from, bounds)).collect()
}

fn payload(from: &mut Reader<'_>, bounds: &mut Bounds) -> Result<Option<Box<Val>>, Malformed> {
    if from.bool()? { Ok(Some(Box::new(read(from, bounds)?))) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(values: &[Val]) -> Vec<u8> {
        let mut out = Writer::new(0);
        write_all(&mut out, values, VALUES_MAX).unwrap();
        out.body().to_vec()
    }

    fn all() -> Vec<Val> {
        vec![
            Val::Bool(true),
            Val::S8(-1),
            Val::U16(7),
            Val::S64(i64::MIN),
            Val::U64(u64::MAX),
            Val::Float32(1.5),
            Val::Float64(-0.25),
            Val::Char('é'),
            Val::String("text".into()),
            Val::List(vec![Val::U8(1), Val::U8(255)]),
            Val::List(vec![]),
            Val::List(vec![Val::U32(1), Val::U32(2)]),
            Val::Tuple(vec![Val::S16(-2), Val::S32(-3)]),
            Val::Record(vec![("a".to_owned(), Val::Option(None))]),
            Val::Variant("case".to_owned(), Some(Box::new(Val::Enum("label".to_owned())))),
            Val::Result(Ok(None)),
            Val::Result(Err(Some(Box::new(Val::Flags(vec!["x".to_owned()]))))),
        ]
    }

    #[test]
    fn values_come_as_they_went() {
        let bytes = written(&all());
        let mut reader = Reader(&bytes);
        assert_eq!(read_all(&mut reader, VALUES_MAX).unwrap(), all());
        reader.end().unwrap();
    }

    #[test]
    fn what_is_cut_or_changed_is_an_error_and_no_panic() {
        let bytes = written(&all());
        for cut in 0..bytes.len() {
            assert!(read_all(&mut Reader(&bytes[..cut]), VALUES_MAX).is_err(), "{cut}");
        }
        for place in 0..bytes.len() {
            for with in [0, 1, 13, 127, 255] {
                let mut changed = bytes.clone();
                changed[place] = with;
                let _ = read_all(&mut Reader(&changed), VALUES_MAX);
            }
        }
    }

    #[test]
    fn depth_and_number_are_bounded() {
        let deep = [vec![1, 0, 0, 0], [OPTION, 1].repeat(1 << 20)].concat();
        assert_eq!(read_all(&mut Reader(&deep), VALUES_MAX), Err(Malformed("a value is too deep")));
        let many = written(&[Val::List(vec![Val::Bool(true); 10])]);
        assert_eq!(read_all(&mut Reader(&many), 5), Err(Malformed("there are more values than may be")));
        let mut out = Writer::new(0);
        assert_eq!(write_all(&mut out, &[Val::List(vec![Val::U8(0); 10])], 5), Err(NotBrought));
    }
}
