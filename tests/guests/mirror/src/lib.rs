//! A guest that shows all that it was given: the attacks are in `tests/it/network`.

use exports::test::mirror::mirror::Guest;
use oncegate::effect::types::{Field, Response, Value};
use oncegate::effect::{effect, lookup};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:mirror/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Mirror;
export!(Mirror);

impl Guest for Mirror {
    fn show(_id: String, trace: Option<String>) -> Result<String, String> {
        let trace = trace.map(|trace| Field { name: "trace".into(), value: Value::Text(trace) });
        let fields: Vec<Field> = trace.into_iter().collect();
        shown(lookup::fetch("look", &fields))
    }

    fn act(_id: String) -> Result<String, String> {
        shown(effect::perform("create", &[]))
    }
}

/// Status, headers, a blank line and the body; an error in its own words.
fn shown<E: std::fmt::Debug>(answer: Result<Response, E>) -> Result<String, String> {
    let answer = answer.map_err(|error| format!("{error:?}"))?;
    let headers: String = answer.headers.iter().map(|header| format!("{}: {}\n", header.name, header.value)).collect();
    Ok(format!("{}\n{headers}\n{}", answer.status, String::from_utf8_lossy(&answer.body)))
}
