//! Reads an order, then the customer whom it names. Nothing here can make anything happen.

use serde::Deserialize;

use exports::acme::orders::orders::{Customer, Guest, Line, Order, Status, Tier};
use oncegate::effect::lookup;

// In a crate of your own: a copy of Oncegate's `wit` folder, then yours.
wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "acme:orders/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Orders;
export!(Orders);

impl Guest for Orders {
    fn show_order(order_id: String) -> Result<Order, String> {
        let order: OrderAnswer = get("get-order", &format!("order {order_id}"))?;
        let customer: CustomerAnswer = get("get-customer", "its customer")?;
        let lines: Vec<Line> = order.lines.into_iter().map(Line::from).collect();
        Ok(Order {
            id: order.id,
            status: status(&order.status)?,
            customer: Customer::try_from(customer)?,
            total: total(&lines).ok_or("the sum of the lines is too large")?,
            lines,
            note: order.note,
        })
    }
}

/// The shop's answers, as far as this tool reads them.
#[derive(Deserialize)]
struct OrderAnswer {
    id: String,
    status: String,
    lines: Vec<LineAnswer>,
    note: Option<String>,
}

#[derive(Deserialize)]
struct LineAnswer {
    sku: String,
    quantity: u32,
    price: i64,
}

#[derive(Deserialize)]
struct CustomerAnswer {
    id: String,
    name: String,
    email: Option<String>,
    tier: String,
}

/// Both lookups take their `id` from the contract's sources: the tool's argument, then the order.
fn get<T: for<'a> Deserialize<'a>>(operation: &str, what: &str) -> Result<T, String> {
    let answer =
        lookup::fetch(operation, &[]).map_err(|error| format!("the shop was not asked for {what}: {error:?}"))?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map_err(|error| format!("the answer is not what this tool reads: {error}")),
        404 => Err(format!("the shop does not know {what}")),
        status => Err(format!("the shop answered {status} when asked for {what}")),
    }
}

fn status(word: &str) -> Result<Status, String> {
    match word {
        "paid" => Ok(Status::Paid),
        "shipped" => Ok(Status::Shipped),
        "delivered" => Ok(Status::Delivered),
        "cancelled" => Ok(Status::Cancelled),
        other => Err(format!("the shop has a new status: {other}")),
    }
}

fn total(lines: &[Line]) -> Option<i64> {
    lines.iter().try_fold(0_i64, |sum, line| sum.checked_add(line.price.checked_mul(line.quantity.into())?))
}

impl From<LineAnswer> for Line {
    fn from(line: LineAnswer) -> Self {
        Self { sku: line.sku, quantity: line.quantity, price: line.price }
    }
}

impl TryFrom<CustomerAnswer> for Customer {
    type Error = String;

    fn try_from(customer: CustomerAnswer) -> Result<Self, String> {
        let tier = match customer.tier.as_str() {
            "basic" => Tier::Basic,
            "gold" => Tier::Gold,
            other => return Err(format!("the shop has a new tier: {other}")),
        };
        Ok(Self { id: customer.id, name: customer.name, email: customer.email, tier })
    }
}
