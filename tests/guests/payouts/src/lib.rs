//! A guest for plans: what it pays is in the plan, and its dry run returns the targets.

use exports::test::payouts::payouts::{DueReturn, Guest, Target, Terms};
use oncegate::effect::types::{Field, Value};
use oncegate::effect::{effect, lookup};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:payouts/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Payouts;
export!(Payouts);

impl Guest for Payouts {
    fn pay(return_id: String, remark: Option<String>) -> Result<String, String> {
        let found = lookup::fetch("get-return", &[]).map_err(|error| format!("{error:?}"))?;
        let body = String::from_utf8_lossy(&found.body).into_owned();
        if found.status != 200 || body.contains("refunded") {
            return Err(format!("{return_id} is not due"));
        }
        let reason = [text("reason", &remark.unwrap_or_default())];
        effect::perform("pay-back", &reason).map(|_| return_id).map_err(|error| format!("{error:?}"))
    }

    fn tell(threads: Vec<String>, _text: String) -> Result<u32, String> {
        let told = threads.iter().filter(|thread| effect::perform("leave-note", &[text("thread", thread)]).is_ok());
        Ok(told.count() as u32)
    }

    fn due(first: u32, count: u32) -> Result<Vec<Target>, String> {
        let mut due = Vec::new();
        for number in first..first + count {
            let return_id = format!("R-{number}");
            let found = lookup::fetch("look-at", &[text("id", &return_id)]).map_err(|error| format!("{error:?}"))?;
            if found.status == 200 && !String::from_utf8_lossy(&found.body).contains("refunded") {
                let arguments = DueReturn { return_id, remark: None };
                due.push(Target { arguments, plan: Terms { amount: i64::from(number) } });
            }
        }
        Ok(due)
    }
}

fn text(name: &str, value: &str) -> Field {
    Field { name: name.into(), value: Value::Text(value.into()) }
}
