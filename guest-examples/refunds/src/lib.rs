//! Refunds one return: looks the return up at the shop, then pays the money back.
//!
//! The guest names values and reads answers. Where they come from, what is sent and what makes
//! two calls the same refund is in `contract.toml`.

use serde::Deserialize;

use exports::acme::refunds::refunds::{Guest, Refund};
use oncegate::effect::types::{Field, Response, Settlement, Value};
use oncegate::effect::{effect, lookup};

// In a crate of your own: a copy of Oncegate's `wit` folder, then yours.
wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "acme:refunds/tool",
    generate_all,
});

#[cfg(feature = "embed")]
#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[cfg(feature = "embed")]
#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Refunds;
export!(Refunds);

impl Guest for Refunds {
    fn issue_refund(return_id: String, amount: Option<i64>, reason: String) -> Result<Refund, String> {
        let goods = get_return(&return_id)?;
        if goods.status == "refunded" {
            return Err(format!("return {return_id} was refunded before"));
        }
        create_refund(amount, reason)
    }
}

/// The shop's answer, as far as this tool reads it.
#[derive(Deserialize)]
struct Return {
    status: String,
}

/// The payment provider's answer to a refund.
#[derive(Deserialize)]
struct Created {
    id: String,
    amount: i64,
    status: String,
}

/// The payment provider's refusal.
#[derive(Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

fn get_return(return_id: &str) -> Result<Return, String> {
    // The host takes `id` from the tool's argument, as the contract says.
    let answer = lookup::fetch("get-return", &[])
        .map_err(|error| format!("the shop was not asked about return {return_id}: {error:?}"))?;
    match answer.status {
        200 => read(&answer),
        404 => Err(format!("the shop has no return {return_id}")),
        status => Err(format!("the shop answered {status} about return {return_id}")),
    }
}

fn create_refund(amount: Option<i64>, reason: String) -> Result<Refund, String> {
    let mut fields = vec![Field { name: "reason".into(), value: Value::Text(reason) }];
    // Without an amount of our own the host writes the one on the return.
    fields.extend(amount.map(|amount| Field { name: "amount".into(), value: Value::Integer(amount) }));
    let answer =
        effect::perform("create-refund", &fields).map_err(|error| format!("the refund was not made: {error:?}"))?;
    if answer.settled == Settlement::NoEffect {
        return Err(match read::<Refusal>(&answer) {
            Ok(refusal) => refusal.error.message,
            Err(_) => format!("the payment provider refused with status {}", answer.status),
        });
    }
    let Created { id, amount, status } = read(&answer)?;
    Ok(Refund { id, amount, status })
}

fn read<T: for<'a> Deserialize<'a>>(answer: &Response) -> Result<T, String> {
    serde_json::from_slice(&answer.body).map_err(|error| format!("the answer is not what this tool reads: {error}"))
}
