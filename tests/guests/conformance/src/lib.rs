//! The tools that MCP's conformance suite calls by name, of those that a typed function can be.

use std::thread;
use std::time::Duration;

use exports::test::conformance::fixtures::Guest;
use oncegate::effect::types::{Field, Value};
use oncegate::effect::{effect, lookup};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:conformance/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

/// Between what is printed, so that a client can hear one line before the next.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a job takes that fails.
const JOB: Duration = Duration::from_secs(1);
/// Effects of the tool that has progress.
const NOTES: u32 = 10;

struct Fixtures;
export!(Fixtures);

impl Guest for Fixtures {
    fn test_simple_text() -> String {
        "This is a simple text response for testing.".into()
    }

    fn test_error_handling() -> Result<String, String> {
        Err("This tool intentionally returns an error for testing".into())
    }

    fn test_tool_with_logging() -> String {
        eprintln!("Tool execution started");
        thread::sleep(PAUSE);
        eprintln!("Tool processing data");
        thread::sleep(PAUSE);
        eprintln!("Tool execution completed");
        "Tool with logging executed successfully".into()
    }

    fn test_logging_tool() -> String {
        eprintln!("This is for those who ask for it.");
        "Printed".into()
    }

    fn test_streaming_elicitation() -> String {
        eprintln!("There is nobody to ask.");
        "Answered".into()
    }

    fn test_tool_with_progress() -> Result<u32, String> {
        for number in 1..=NOTES {
            let id = format!("R-{number}");
            lookup::fetch("look", &[text("id", &id)]).map_err(|error| format!("{error:?}"))?;
            let note = [text("thread", &id), text("text", "a note")];
            effect::perform("leave-note", &note).map_err(|error| format!("{error:?}"))?;
            eprintln!("note {number}");
        }
        Ok(NOTES)
    }

    fn greet(name: String) -> String {
        format!("Hello, {name}!")
    }

    fn slow_compute(seconds: u32, label: Option<String>) -> String {
        thread::sleep(Duration::from_secs(seconds.into()));
        format!("{} after {seconds} s", label.unwrap_or_default())
    }

    fn failing_job() -> Result<String, String> {
        thread::sleep(JOB);
        Err("This job fails".into())
    }
}

fn text(name: &str, value: &str) -> Field {
    Field { name: name.into(), value: Value::Text(value.into()) }
}
