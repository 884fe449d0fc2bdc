//! A guest that does whatever a test tells it: the attacks are in `tests/it/hostile.rs`.

use std::io::Write;

use exports::test::hostile::puppet::{Ask, Given, Guest, Step};
use oncegate::effect::types::{Field, Response, Value};
use oncegate::effect::{context, effect, lookup};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:hostile/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Puppet;
export!(Puppet);

impl Guest for Puppet {
    fn act(_return_id: String, script: Vec<Step>) -> Result<Vec<String>, String> {
        script.into_iter().map(play).collect()
    }

    fn both(_return_id: String, script: Vec<Step>) -> Result<Vec<String>, String> {
        script.into_iter().map(play).collect()
    }

    fn peek(_return_id: String, script: Vec<Step>) -> Result<Vec<String>, String> {
        script.into_iter().map(play).collect()
    }
}

/// Errors of the host are told and ignored; only `fail` ends the script by itself.
fn play(step: Step) -> Result<String, String> {
    match step {
        Step::Fetch(ask) => Ok(told(lookup::fetch(&ask.operation, &fields(&ask)))),
        Step::Perform(ask) => Ok(told(effect::perform(&ask.operation, &fields(&ask)))),
        Step::FetchOften(times) => Ok(last(times, || told(lookup::fetch("get-return", &[])))),
        Step::ContextOften(times) => Ok(last(times, || format!("{:?}", context::get("tenant")))),
        Step::Spin => spin(),
        Step::Allocate => Ok(allocate()),
        Step::Recurse => Ok(format!("{}", recurse(1))),
        Step::Flood(bytes) => Ok(flood(bytes)),
        Step::Trap => core::arch::wasm32::unreachable(),
        Step::Leave => std::process::exit(0),
        Step::Swell(bytes) => Ok("x".repeat(bytes as usize)),
        Step::Fail(error) => Err(error),
    }
}

fn fields(ask: &Ask) -> Vec<Field> {
    let given = ask.fields.iter().map(|argument| Field { name: argument.name.clone(), value: value(&argument.value) });
    let more = (0..ask.more.unwrap_or_default())
        .map(|number| Field { name: format!("f{number}"), value: Value::Boolean(true) });
    given.chain(more).collect()
}

fn value(given: &Given) -> Value {
    match given {
        Given::Text(text) => Value::Text(text.clone()),
        Given::Long(bytes) => Value::Text("x".repeat(*bytes as usize)),
        Given::Integer(number) => Value::Integer(*number),
        Given::Decimal(text) => Value::Decimal(text.clone()),
        Given::Truth(truth) => Value::Boolean(*truth),
        Given::Json(text) => Value::Json(text.clone()),
        Given::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

fn told<E: std::fmt::Debug>(answer: Result<Response, E>) -> String {
    match answer {
        Ok(answer) => format!("{} {:?}", answer.status, answer.settled),
        Err(error) => format!("{error:?}"),
    }
}

fn last(times: u32, mut ask: impl FnMut() -> String) -> String {
    (0..times).map(|_| ask()).last().unwrap_or_default()
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

fn allocate() -> String {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block: Vec<u8> = Vec::new();
        if block.try_reserve_exact(1 << 20).is_err() {
            return format!("{} MiB", blocks.len());
        }
        block.resize(1 << 20, 1);
        blocks.push(std::hint::black_box(block));
    }
}

#[expect(unconditional_recursion, reason = "this is the attack")]
fn recurse(depth: u64) -> u64 {
    std::hint::black_box([depth; 16])[0].wrapping_add(recurse(depth.wrapping_add(1)))
}

fn flood(bytes: u32) -> String {
    let line = [b'x'; 4096];
    let mut written = 0;
    while written < bytes as usize {
        let out = std::io::stdout().write(&line);
        let errors = std::io::stderr().write(&line);
        if out.is_err() && errors.is_err() {
            return format!("stopped after {written}");
        }
        written += line.len();
    }
    format!("wrote {written}")
}
