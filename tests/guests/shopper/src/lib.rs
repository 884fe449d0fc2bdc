//! A guest without a contract of its own: tests pack it with one whose lookup asks a database.

use exports::test::shopper::shopper::Guest;
use oncegate::effect::types::{Field, Value};
use oncegate::effect::{effect, lookup};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:shopper/tool",
    generate_all,
});

struct Shopper;
export!(Shopper);

impl Guest for Shopper {
    fn refund(return_id: String, amount: i64, reason: String) -> Result<String, String> {
        lookup::fetch("get-return", &[]).map_err(|error| format!("{return_id}: {error:?}"))?;
        let fields = [field("amount", Value::Integer(amount)), field("reason", Value::Text(reason))];
        let answer = effect::perform("create-refund", &fields).map_err(|error| format!("{return_id}: {error:?}"))?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}

fn field(name: &str, value: Value) -> Field {
    Field { name: name.into(), value }
}
