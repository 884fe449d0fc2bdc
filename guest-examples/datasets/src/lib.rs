//! Imports the rows of a file once, and takes them out again.
//!
//! The guest never says what makes two imports the same: the host makes the digest of the file's bytes
//! itself, as `contract.toml` says, and links a deletion to the import that it undoes.

use serde::Deserialize;

use exports::acme::datasets::datasets::{Dataset, Guest};
use oncegate::effect::effect;
use oncegate::effect::types::{Response, Settlement};

// In a crate of your own: a copy of Oncegate's `wit` folder, then yours.
wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "acme:datasets/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Datasets;
export!(Datasets);

/// The store's answer to an import, as far as this tool reads it.
#[derive(Deserialize)]
struct Imported {
    id: String,
    rows: u32,
}

impl Guest for Datasets {
    fn import_file(_owner: String, _folder: String, _name: String, _file: Vec<u8>) -> Result<Dataset, String> {
        // The host takes all four from the tool's arguments, as the contract says.
        let answer = perform("import-dataset")?;
        let Imported { id, rows } = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("the answer is not what this tool reads: {error}"))?;
        Ok(Dataset { id, rows })
    }

    fn delete_dataset(id: String) -> Result<String, String> {
        perform("delete-dataset").map(|_| id)
    }
}

/// Performs an operation that the store did not refuse.
fn perform(operation: &str) -> Result<Response, String> {
    let answer = effect::perform(operation, &[]).map_err(|error| format!("{operation} has no answer: {error:?}"))?;
    match answer.settled {
        Settlement::Done => Ok(answer),
        Settlement::NoEffect | Settlement::None => {
            Err(format!("{operation}: the store refused with status {}", answer.status))
        }
    }
}
