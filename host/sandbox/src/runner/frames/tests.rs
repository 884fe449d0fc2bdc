//! Frames as they went, and as they must not come.

use super::*;
use crate::limits::Limits;

fn fields() -> Vec<Field> {
    let field = |name: &str, value| Field { name: name.to_owned(), value };
    vec![
        field("a", FieldValue::Text("é".to_owned())),
        field("b", FieldValue::Integer(-5)),
        field("c", FieldValue::Decimal("1.50".to_owned())),
        field("d", FieldValue::Boolean(true)),
        field("e", FieldValue::Json("{}".to_owned())),
        field("f", FieldValue::Bytes(vec![0, 255])),
    ]
}

fn from_runner() -> Vec<Vec<u8>> {
    let perform = Ask::Perform { operation: "create-refund".to_owned(), fields: fields() };
    let fetch = Ask::Fetch { operation: "get-return".to_owned(), fields: fields() };
    vec![
        ready(Walls { landlock: 7, user_namespace: true, network_namespace: false }, 64),
        unfit("no seccomp"),
        asked(7, b"hello", &perform),
        asked(u64::MAX, b"", &fetch),
        asked(0, b"", &Ask::Context { name: "tenant".to_owned() }),
        ended(1, b"bye", 3, &Run::Returned(vec![Val::String("ok".into())])),
        ended(1, b"", 0, &Run::Trapped("unreachable".to_owned())),
        ended(1, b"", 0, &Run::Limit("memory")),
        ended(1, b"", 0, &Run::TooLarge { error: true }),
        ended(1, b"", 0, &Run::Lost),
        tried(&[Attempt { what: "read a file".to_owned(), refused: None }]),
    ]
}

fn to_runner() -> Vec<Vec<u8>> {
    let headers = vec![Header { name: "etag".to_owned(), value: "x".to_owned() }];
    let response =
        Response { status: 200, body: b"{}".to_vec(), headers, replayed: true, settled: Settlement::NoEffect };
    let export = Export { interface: Some("a:b/c".to_owned()), name: "tool".to_owned(), returns: true };
    let bounds = Bounds::of(&Limits::default());
    let task = task(0, &bounds, &[Val::U32(1)]).unwrap();
    let text = || "why".to_owned();
    let mut all = vec![
        component(3, EffectClass::Keyed, 100, &[export]),
        begin(9, 3, &task),
        cancel(9),
        attempt_all(),
        told(9, &Told::Fetch(Ok(response))),
        told(9, &Told::Context(None)),
        told(9, &Told::OverLimit("host-calls")),
        told(9, &Told::Trap(text())),
    ];
    let lookups = [
        LookupError::NotPermitted(text()),
        LookupError::Limit(text()),
        LookupError::InvalidField(text()),
        LookupError::ContextMissing(text()),
        LookupError::Unavailable(text()),
    ];
    all.extend(lookups.map(|error| told(9, &Told::Fetch(Err(error)))));
    let effects = [
        EffectError::InProgress,
        EffectError::Unknown,
        EffectError::KeyReused(vec![text(), text()]),
        EffectError::KeyReused(vec![]),
        EffectError::AwaitingApproval,
        EffectError::Revoked,
        EffectError::NotPermitted(text()),
        EffectError::Limit(text()),
        EffectError::InvalidField(text()),
        EffectError::ContextMissing(text()),
        EffectError::Unavailable(text()),
    ];
    all.extend(effects.map(|error| told(9, &Told::Perform(Err(error)))));
    all
}

/// The frame without its length.
fn body(frame: &[u8]) -> &[u8] {
    &frame[super::super::wire::LENGTH_BYTES..]
}

/// A frame says what it said when it was written: writing what was read gives the same bytes.
#[test]
fn what_is_said_is_heard() {
    for frame in from_runner() {
        let again = match read_from_runner(body(&frame)).unwrap() {
            FromRunner::Ready(walls, slots) => ready(walls, slots),
            FromRunner::Unfit(why) => unfit(&why),
            FromRunner::Asked { call, printed, ask } => asked(call, &printed, &ask),
            FromRunner::Ended { call, printed, swallowed, run } => ended(call, &printed, swallowed, &run),
            FromRunner::Tried(attempts) => tried(&attempts),
        };
        assert_eq!(again, frame);
    }
    for frame in to_runner() {
        let again = match read_to_runner(body(&frame)).unwrap() {
            ToRunner::Component { component: id, class, bytes, exports } => component(id, class, bytes, &exports),
            ToRunner::Begin(one) => {
                let task = task(one.tool, &one.bounds, &one.arguments).unwrap();
                begin(one.call, one.component, &task)
            }
            ToRunner::Told { call, told: what } => told(call, &what),
            ToRunner::Cancel { call } => cancel(call),
            ToRunner::Try => attempt_all(),
        };
        assert_eq!(again, frame);
    }
}

#[test]
fn what_is_cut_off_or_goes_on_is_refused() {
    for frame in from_runner() {
        for cut in 0..body(&frame).len() {
            assert!(read_from_runner(&body(&frame)[..cut]).is_err(), "{frame:?} at {cut}");
        }
        assert!(read_from_runner(&[body(&frame), b"x"].concat()).is_err());
    }
}

#[test]
fn no_byte_makes_the_host_panic() {
    for frame in from_runner() {
        for place in 0..body(&frame).len() {
            for with in 0..=255 {
                let mut changed = body(&frame).to_vec();
                changed[place] = with;
                let _ = read_from_runner(&changed);
            }
        }
    }
}

#[test]
fn a_runner_names_no_limit_of_its_own() {
    let frame = ended(1, b"", 0, &Run::Limit("memory"));
    let at = frame.windows(6).position(|name| name == b"memory").unwrap();
    let mut other = frame;
    other[at..at + 6].copy_from_slice(b"policy");
    assert_eq!(read_from_runner(body(&other)).unwrap_err(), Malformed("there is no such limit"));
}

#[test]
fn what_is_too_large_is_said_to_be() {
    let large = Val::List(vec![Val::String("x".repeat(1 << 20)); 20]);
    let failed = Run::Returned(vec![Val::Result(Err(Some(Box::new(large))))]);
    let frame = ended(1, b"", 0, &failed);
    assert!(frame.len() < 100);
    let FromRunner::Ended { run: Run::TooLarge { error: true }, .. } = read_from_runner(body(&frame)).unwrap() else {
        panic!("not said");
    };
}
