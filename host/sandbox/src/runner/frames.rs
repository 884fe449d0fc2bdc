//! What the host and a runner say to each other.
//!
//! A runner can say that a guest of a call made one of the interface's calls, printed something, or ended; nothing else.
//! The host decides what any of it comes to. No secret and no request is ever in a frame.

use std::time::Duration;

use oncegate_contract::EffectClass;
use wasmtime::component::Val;

use super::values::{self, NotBrought, VALUES_MAX};
use super::wire::{Malformed, Reader, Writer};
use crate::door::{Ask, Told};
use crate::effect::{EffectError, Field, FieldValue, Header, LookupError, Response, Settlement};
use crate::guest::{Bounds, Run};
use crate::isolation::{Attempt, Walls};
use crate::limits::ENDING;
use crate::load::Export;

/// Bytes of one frame from a runner: what a guest can hand out at once, several times over.
pub(super) const FROM_RUNNER_BYTES_MAX: usize = 16 << 20;
/// Bytes of one frame to a runner: arguments, or a provider's answer as large as the policy lets a guest see.
pub(super) const TO_RUNNER_BYTES_MAX: usize = 256 << 20;
/// Bytes of a text that says why a guest ended.
const WHY_BYTES_MAX: usize = 4_096;

/// What the host says.
#[derive(Debug)]
pub(super) enum ToRunner {
    /// The code that comes with this frame, so many bytes of it, is this component.
    Component { component: u32, class: EffectClass, bytes: u64, exports: Vec<Export> },
    /// Run a tool for this call.
    Begin(Box<Begin>),
    /// What the guest of this call is told.
    Told { call: u64, told: Told },
    /// Nobody waits for this call any more.
    Cancel { call: u64 },
    /// Try what must not be possible.
    Try,
}

/// A tool to run.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) call: u64,
    pub(super) component: u32,
    pub(super) tool: usize,
    pub(super) bounds: Bounds,
    pub(super) arguments: Vec<Val>,
}

/// What a runner says.
#[derive(Debug)]
pub(super) enum FromRunner {
    /// It has walled itself off and takes calls, so many at once.
    Ready(Walls, u32),
    /// It has not, and ends.
    Unfit(String),
    /// A guest made a call; before that it printed this.
    Asked { call: u64, printed: Vec<u8>, ask: Ask },
    /// A guest ended; before that it printed this, and so much more was not kept.
    Ended { call: u64, printed: Vec<u8>, swallowed: u64, run: Run },
    /// What it tried.
    Tried(Vec<Attempt>),
}

const COMPONENT: u8 = 1;
const BEGIN: u8 = 2;
const TOLD: u8 = 3;
const CANCEL: u8 = 4;
const TRY: u8 = 5;
const READY: u8 = 11;
const UNFIT: u8 = 12;
const ASKED: u8 = 13;
const ENDED: u8 = 14;
const TRIED: u8 = 15;

pub(super) fn component(component: u32, class: EffectClass, bytes: u64, exports: &[Export]) -> Vec<u8> {
    let mut out = Writer::new(COMPONENT);
    out.u32(component);
    out.bool(class == EffectClass::Keyed);
    out.u64(bytes);
    out.count(exports.len());
    for export in exports {
        out.option(export.interface.as_deref(), Writer::text);
        out.text(&export.name);
        out.bool(export.returns);
    }
    out.finish()
}

/// What of [`Begin`] is the same wherever the call runs: it is written once.
pub(super) fn task(tool: usize, bounds: &Bounds, arguments: &[Val]) -> Option<Vec<u8>> {
    let mut out = Writer::new(BEGIN);
    out.count(tool);
    write_bounds(&mut out, bounds);
    values::write_all(&mut out, arguments, usize::MAX).ok()?;
    Some(out.body().to_vec())
}

fn write_bounds(out: &mut Writer, bounds: &Bounds) {
    let Bounds { memory_bytes_max, host_call_bytes_max, handles_max, random_bytes_max, log_bytes_max, wall_time_max } =
        *bounds;
    for bytes in [memory_bytes_max, host_call_bytes_max, random_bytes_max, log_bytes_max] {
        out.u64(bytes as u64);
    }
    out.u32(handles_max);
    out.u64(wall_time_max.as_secs());
    out.u32(wall_time_max.subsec_nanos());
}

fn read_bounds(from: &mut Reader<'_>) -> Result<Bounds, Malformed> {
    let mut bytes = || Ok(usize::try_from(from.u64()?).unwrap_or(usize::MAX));
    let (memory_bytes_max, host_call_bytes_max) = (bytes()?, bytes()?);
    let (random_bytes_max, log_bytes_max) = (bytes()?, bytes()?);
    let handles_max = from.u32()?;
    let wall_time_max = Duration::new(from.u64()?, from.u32()?.min(999_999_999));
    Ok(Bounds { memory_bytes_max, host_call_bytes_max, handles_max, random_bytes_max, log_bytes_max, wall_time_max })
}

pub(super) fn begin(call: u64, component: u32, task: &[u8]) -> Vec<u8> {
    let mut out = Writer::new(BEGIN);
    out.u64(call);
    out.u32(component);
    out.raw(task);
    out.finish()
}

pub(super) fn cancel(call: u64) -> Vec<u8> {
    let mut out = Writer::new(CANCEL);
    out.u64(call);
    out.finish()
}

pub(super) fn attempt_all() -> Vec<u8> {
    Writer::new(TRY).finish()
}

pub(super) fn told(call: u64, told: &Told) -> Vec<u8> {
    let mut out = Writer::new(TOLD);
    out.u64(call);
    match told {
        Told::Fetch(Ok(response)) => write_response(&mut out, 0, response),
        Told::Fetch(Err(error)) => write_lookup_error(&mut out, error),
        Told::Perform(Ok(response)) => write_response(&mut out, 2, response),
        Told::Perform(Err(error)) => write_effect_error(&mut out, error),
        Told::Context(value) => {
            out.u8(4);
            out.option(value.as_deref(), Writer::text);
        }
        Told::OverLimit(name) => {
            out.u8(5);
            out.text(name);
        }
        Told::Trap(why) => {
            out.u8(6);
            out.text(why);
        }
    }
    out.finish()
}

fn read_told(from: &mut Reader<'_>) -> Result<Told, Malformed> {
    Ok(match from.u8()? {
        0 => Told::Fetch(Ok(read_response(from)?)),
        1 => Told::Fetch(Err(read_lookup_error(from)?)),
        2 => Told::Perform(Ok(read_response(from)?)),
        3 => Told::Perform(Err(read_effect_error(from)?)),
        4 => Told::Context(from.option(Reader::text)?),
        5 => Told::OverLimit(limit(&from.text()?)?),
        6 => Told::Trap(from.text()?),
        _ => return Err(Malformed("an answer is of no kind")),
    })
}

fn write_response(out: &mut Writer, tag: u8, response: &Response) {
    out.u8(tag);
    out.u16(response.status);
    out.bytes(&response.body);
    out.count(response.headers.len());
    for header in &response.headers {
        out.text(&header.name);
        out.text(&header.value);
    }
    out.bool(response.replayed);
    out.u8(match response.settled {
        Settlement::None => 0,
        Settlement::Done => 1,
        Settlement::NoEffect => 2,
    });
}

fn read_response(from: &mut Reader<'_>) -> Result<Response, Malformed> {
    let (status, body, count) = (from.u16()?, from.bytes()?.to_vec(), from.count()?);
    let header = |_| Ok(Header { name: from.text()?, value: from.text()? });
    let headers = (0..count).map(header).collect::<Result<_, Malformed>>()?;
    let replayed = from.bool()?;
    let settled = match from.u8()? {
        0 => Settlement::None,
        1 => Settlement::Done,
        2 => Settlement::NoEffect,
        _ => return Err(Malformed("a settlement is of no kind")),
    };
    Ok(Response { status, body, headers, replayed, settled })
}

fn write_lookup_error(out: &mut Writer, error: &LookupError) {
    let (tag, text) = match error {
        LookupError::NotPermitted(text) => (0, text),
        LookupError::Limit(text) => (1, text),
        LookupError::InvalidField(text) => (2, text),
        LookupError::ContextMissing(text) => (3, text),
        LookupError::Unavailable(text) => (4, text),
    };
    out.u8(1);
    out.u8(tag);
    out.text(text);
}

fn read_lookup_error(from: &mut Reader<'_>) -> Result<LookupError, Malformed> {
    Ok(match (from.u8()?, from.text()?) {
        (0, text) => LookupError::NotPermitted(text),
        (1, text) => LookupError::Limit(text),
        (2, text) => LookupError::InvalidField(text),
        (3, text) => LookupError::ContextMissing(text),
        (4, text) => LookupError::Unavailable(text),
        _ => return Err(Malformed("an error is of no kind")),
    })
}

fn write_effect_error(out: &mut Writer, error: &EffectError) {
    out.u8(3);
    let (tag, texts): (u8, &[String]) = match error {
        EffectError::InProgress => (0, &[]),
        EffectError::Unknown => (1, &[]),
        EffectError::AwaitingApproval => (2, &[]),
        EffectError::Revoked => (3, &[]),
        EffectError::KeyReused(fields) => (4, fields),
        EffectError::NotPermitted(text) => (5, std::slice::from_ref(text)),
        EffectError::Limit(text) => (6, std::slice::from_ref(text)),
        EffectError::InvalidField(text) => (7, std::slice::from_ref(text)),
        EffectError::ContextMissing(text) => (8, std::slice::from_ref(text)),
        EffectError::Unavailable(text) => (9, std::slice::from_ref(text)),
    };
    out.u8(tag);
    out.count(texts.len());
    texts.iter().for_each(|text| out.text(text));
}

fn read_effect_error(from: &mut Reader<'_>) -> Result<EffectError, Malformed> {
    let (tag, count) = (from.u8()?, from.count()?);
    let texts: Vec<String> = (0..count).map(|_| from.text()).collect::<Result<_, _>>()?;
    if tag == 4 {
        return Ok(EffectError::KeyReused(texts));
    }
    let text = texts.into_iter().next();
    let said = || text.clone().ok_or(Malformed("an error says nothing"));
    Ok(match tag {
        0 => EffectError::InProgress,
        1 => EffectError::Unknown,
        2 => EffectError::AwaitingApproval,
        3 => EffectError::Revoked,
        5 => EffectError::NotPermitted(said()?),
        6 => EffectError::Limit(said()?),
        7 => EffectError::InvalidField(said()?),
        8 => EffectError::ContextMissing(said()?),
        9 => EffectError::Unavailable(said()?),
        _ => return Err(Malformed("an error is of no kind")),
    })
}

pub(super) fn read_to_runner(frame: &[u8]) -> Result<ToRunner, Malformed> {
    let mut from = Reader(frame);
    let said = match from.u8()? {
        COMPONENT => {
            let component = from.u32()?;
            let class = if from.bool()? { EffectClass::Keyed } else { EffectClass::None };
            let (bytes, count) = (from.u64()?, from.count()?);
            let export = |_| {
                let interface = from.option(Reader::text)?;
                Ok(Export { interface, name: from.text()?, returns: from.bool()? })
            };
            let exports = (0..count).map(export).collect::<Result<_, Malformed>>()?;
            ToRunner::Component { component, class, bytes, exports }
        }
        BEGIN => {
            let (call, component) = (from.u64()?, from.u32()?);
            let tool = usize::try_from(from.u32()?).unwrap_or(usize::MAX);
            let bounds = read_bounds(&mut from)?;
            let arguments = values::read_all(&mut from, usize::MAX)?;
            ToRunner::Begin(Box::new(Begin { call, component, tool, bounds, arguments }))
        }
        TOLD => ToRunner::Told { call: from.u64()?, told: read_told(&mut from)? },
        CANCEL => ToRunner::Cancel { call: from.u64()? },
        TRY => ToRunner::Try,
        _ => return Err(Malformed("a frame is of no kind")),
    };
    from.end()?;
    Ok(said)
}

pub(super) fn ready(walls: Walls, slots: u32) -> Vec<u8> {
    let mut out = Writer::new(READY);
    out.u32(walls.landlock);
    out.bool(walls.user_namespace);
    out.bool(walls.network_namespace);
    out.u32(slots);
    out.finish()
}

pub(super) fn unfit(why: &str) -> Vec<u8> {
    let mut out = Writer::new(UNFIT);
    out.text(why);
    out.finish()
}

pub(super) fn asked(call: u64, printed: &[u8], ask: &Ask) -> Vec<u8> {
    let mut out = Writer::new(ASKED);
    out.u64(call);
    out.bytes(printed);
    match ask {
        Ask::Fetch { operation, fields } => write_operation(&mut out, 0, operation, fields),
        Ask::Perform { operation, fields } => write_operation(&mut out, 1, operation, fields),
        Ask::Context { name } => {
            out.u8(2);
            out.text(name);
        }
    }
    out.finish()
}

fn write_operation(out: &mut Writer, tag: u8, operation: &str, fields: &[Field]) {
    out.u8(tag);
    out.text(operation);
    out.count(fields.len());
    for field in fields {
        out.text(&field.name);
        match &field.value {
            FieldValue::Text(text) => tagged(out, 0, text.as_bytes()),
            FieldValue::Decimal(text) => tagged(out, 1, text.as_bytes()),
            FieldValue::Json(text) => tagged(out, 2, text.as_bytes()),
            FieldValue::Bytes(bytes) => tagged(out, 3, bytes),
            FieldValue::Integer(number) => {
                out.u8(4);
                out.u64(number.cast_unsigned());
            }
            FieldValue::Boolean(truth) => {
                out.u8(5);
                out.bool(*truth);
            }
        }
    }
}

fn tagged(out: &mut Writer, tag: u8, bytes: &[u8]) {
    out.u8(tag);
    out.bytes(bytes);
}

fn read_ask(from: &mut Reader<'_>) -> Result<Ask, Malformed> {
    let tag = from.u8()?;
    if tag == 2 {
        return Ok(Ask::Context { name: from.text()? });
    }
    let operation = from.text()?;
    let count = from.count()?;
    let fields = (0..count).map(|_| read_field(from)).collect::<Result<_, _>>()?;
    match tag {
        0 => Ok(Ask::Fetch { operation, fields }),
        1 => Ok(Ask::Perform { operation, fields }),
        _ => Err(Malformed("a guest's call is of no kind")),
    }
}

fn read_field(from: &mut Reader<'_>) -> Result<Field, Malformed> {
    let name = from.text()?;
    let value = match from.u8()? {
        0 => FieldValue::Text(from.text()?),
        1 => FieldValue::Decimal(from.text()?),
        2 => FieldValue::Json(from.text()?),
        3 => FieldValue::Bytes(from.bytes()?.to_vec()),
        4 => FieldValue::Integer(from.u64()?.cast_signed()),
        5 => FieldValue::Boolean(from.bool()?),
        _ => return Err(Malformed("a field is of no kind")),
    };
    Ok(Field { name, value })
}

/// What a guest's run came to; what is larger than a frame is said to be too large.
pub(super) fn ended(call: u64, printed: &[u8], swallowed: u64, run: &Run) -> Vec<u8> {
    let mut out = head(call, printed, swallowed);
    match run {
        Run::Returned(returned) => {
            out.u8(0);
            let written = values::write_all(&mut out, returned, VALUES_MAX);
            if written == Err(NotBrought) || out.len() > FROM_RUNNER_BYTES_MAX {
                out = head(call, printed, swallowed);
                let error = matches!(returned.first(), Some(Val::Result(Err(_))));
                write_too_large(&mut out, error);
            }
        }
        Run::Trapped(why) => {
            out.u8(1);
            out.text(cut(why));
        }
        Run::Limit(name) => {
            out.u8(2);
            out.text(name);
        }
        Run::TooLarge { error } => write_too_large(&mut out, *error),
        Run::Lost => out.u8(4),
    }
    out.finish()
}

fn head(call: u64, printed: &[u8], swallowed: u64) -> Writer {
    let mut out = Writer::new(ENDED);
    out.u64(call);
    out.bytes(printed);
    out.u64(swallowed);
    out
}

fn write_too_large(out: &mut Writer, error: bool) {
    out.u8(3);
    out.bool(error);
}

fn cut(why: &str) -> &str {
    &why[..why.floor_char_boundary(WHY_BYTES_MAX)]
}

fn read_run(from: &mut Reader<'_>) -> Result<Run, Malformed> {
    Ok(match from.u8()? {
        0 => Run::Returned(values::read_all(from, VALUES_MAX)?),
        1 => {
            let why = from.text()?;
            if why.len() > WHY_BYTES_MAX {
                return Err(Malformed("a reason is too long"));
            }
            Run::Trapped(why)
        }
        2 => Run::Limit(limit(&from.text()?)?),
        3 => Run::TooLarge { error: from.bool()? },
        4 => Run::Lost,
        _ => return Err(Malformed("an end is of no kind")),
    })
}

fn limit(name: &str) -> Result<&'static str, Malformed> {
    ENDING.into_iter().find(|known| *known == name).ok_or(Malformed("there is no such limit"))
}

pub(super) fn tried(attempts: &[Attempt]) -> Vec<u8> {
    let mut out = Writer::new(TRIED);
    out.count(attempts.len());
    for attempt in attempts {
        out.text(&attempt.what);
        out.option(attempt.refused.as_deref(), Writer::text);
    }
    out.finish()
}

pub(super) fn read_from_runner(frame: &[u8]) -> Result<FromRunner, Malformed> {
    let mut from = Reader(frame);
    let said = match from.u8()? {
        READY => {
            let (landlock, user_namespace, network_namespace) = (from.u32()?, from.bool()?, from.bool()?);
            FromRunner::Ready(Walls { landlock, user_namespace, network_namespace }, from.u32()?)
        }
        UNFIT => FromRunner::Unfit(from.text()?),
        ASKED => {
            let (call, printed) = (from.u64()?, from.bytes()?.to_vec());
            FromRunner::Asked { call, printed, ask: read_ask(&mut from)? }
        }
        ENDED => {
            let (call, printed, swallowed) = (from.u64()?, from.bytes()?.to_vec(), from.u64()?);
            FromRunner::Ended { call, printed, swallowed, run: read_run(&mut from)? }
        }
        TRIED => {
            let count = from.count()?;
            let attempt = |_| Ok(Attempt { what: from.text()?, refused: from.option(Reader::text)? });
            FromRunner::Tried((0..count).map(attempt).collect::<Result<_, Malformed>>()?)
        }
        _ => return Err(Malformed("a frame is of no kind")),
    };
    from.end()?;
    Ok(said)
}

#[cfg(test)]
mod tests;
