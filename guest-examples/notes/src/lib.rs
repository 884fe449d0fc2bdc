//! Adds one note to a thread: an effect that may be wanted many times with the same words.
//!
//! The guest knows nothing of the sequence that tells one note from the next: `contract.toml`
//! asks the orchestrator for it.

use serde::Deserialize;

use exports::acme::notes::notes::{Guest, Note};
use oncegate::effect::effect;
use oncegate::effect::types::{Field, Settlement, Value};

// In a crate of your own: a copy of Oncegate's `wit` folder, then yours.
wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "acme:notes/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Notes;
export!(Notes);

/// The provider's answer, as far as this tool reads it.
#[derive(Deserialize)]
struct Created {
    id: String,
    thread: String,
    text: String,
}

impl Guest for Notes {
    fn append_note(_thread: String, text: String) -> Result<Note, String> {
        // The host takes `thread` from the tool's argument, as the contract says.
        let fields = [Field { name: "text".into(), value: Value::Text(text) }];
        let answer =
            effect::perform("create-note", &fields).map_err(|error| format!("the note was not added: {error:?}"))?;
        if answer.settled == Settlement::NoEffect {
            return Err(format!("the provider refused with status {}", answer.status));
        }
        let Created { id, thread, text } = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("the answer is not what this tool reads: {error}"))?;
        Ok(Note { id, thread, text })
    }
}
