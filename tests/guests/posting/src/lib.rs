//! One effect whose key is an argument, and one lookup: what Oncegate adds to a request is measured with them.

use exports::test::posting::posting::Guest;
use oncegate::effect::types::{Field, Value};
use oncegate::effect::{effect, lookup};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:posting/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Posting;
export!(Posting);

impl Guest for Posting {
    fn post(_id: String, _amount: i64, memo: String) -> Result<String, String> {
        let memo = Field { name: "memo".into(), value: Value::Text(memo) };
        let response = effect::perform("create-posting", &[memo]).map_err(|error| format!("{error:?}"))?;
        let body = String::from_utf8_lossy(&response.body);
        let id = body.split_once("\"id\":\"").and_then(|(_, rest)| rest.split_once('"')).map(|(id, _)| id.to_owned());
        id.ok_or_else(|| format!("no identifier in {body}"))
    }

    fn look(_id: String) -> Result<u32, String> {
        let response = lookup::fetch("get-item", &[]).map_err(|error| format!("{error:?}"))?;
        u32::try_from(response.body.len()).map_err(|error| error.to_string())
    }
}
