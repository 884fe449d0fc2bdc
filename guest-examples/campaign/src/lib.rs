//! Sends one email to each recipient of a campaign.
//!
//! Called again after it was cut off half-way, it starts from the first recipient once more: those
//! who have their email get the stored answer, nothing is sent to them twice.

use serde::Deserialize;

use exports::acme::campaign::campaign::{Guest, Refusal, Report};
use oncegate::effect::effect;
use oncegate::effect::types::{Field, Response, Settlement, Value};

// In a crate of your own: a copy of Oncegate's `wit` folder, then yours.
wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "acme:campaign/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Campaign;
export!(Campaign);

impl Guest for Campaign {
    fn send_campaign(subject: String, body: String, recipients: Vec<String>) -> Result<Report, String> {
        let mut report = Report { sent: 0, refused: Vec::new() };
        for recipient in recipients {
            let answer = send(&recipient, &subject, &body)
                .map_err(|error| format!("stopped after {} emails: {error}", report.sent))?;
            match answer.settled {
                Settlement::NoEffect => report.refused.push(Refusal { recipient, reason: reason(&answer) }),
                _ => report.sent += 1,
            }
        }
        Ok(report)
    }
}

fn send(recipient: &str, subject: &str, body: &str) -> Result<Response, String> {
    // `to` is one of the tool's `recipients`; the host only lets these through.
    let fields = [text("to", recipient), text("subject", subject), text("body", body)];
    effect::perform("send-email", &fields).map_err(|error| format!("{error:?}"))
}

fn text(name: &str, value: &str) -> Field {
    Field { name: name.into(), value: Value::Text(value.into()) }
}

/// The provider's refusal, as far as this tool reads it.
#[derive(Deserialize)]
struct Refused {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

fn reason(answer: &Response) -> String {
    match serde_json::from_slice::<Refused>(&answer.body) {
        Ok(refused) => refused.error.message,
        Err(_) => format!("the provider refused with status {}", answer.status),
    }
}
