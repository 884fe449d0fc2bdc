//! How permits are printed.

use oncegate_sandbox::permit::{Balance, Decision, Granted};
use oncegate_sandbox::rfc3339;
use serde_json::{Value, json};

use crate::home::{Home, now_ms};
use crate::print::{self, Cell, Tone, clean};

/// What was done to one permit.
pub(super) fn one(home: &Home, found: &Granted, done: &str) -> anyhow::Result<()> {
    if home.json() {
        return print::out(&print::json(&as_json(found, None), true)?);
    }
    let permit = &found.permit;
    let bounds = bounds(found).join(", ");
    let bounds = if bounds.is_empty() { "without a bound".to_owned() } else { bounds };
    print::out(&format!(
        "{done} {} for {}: {}, {}\n",
        clean(&permit.id),
        clean(&permit.tenant),
        clean(&permit.operations.join(", ")),
        clean(&bounds)
    ))
}

fn bounds(found: &Granted) -> Vec<String> {
    let permit = &found.permit;
    let mut bounds: Vec<String> = permit.count.iter().map(|count| format!("at most {count} effects")).collect();
    for sum in &permit.sums {
        let currency = sum.currency.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
        bounds.push(format!("at most {}{currency} of {}", sum.max, sum.field));
    }
    bounds.extend(permit.component.iter().map(|digest| format!("component {digest}")));
    bounds.extend(permit.owner.iter().map(|owner| format!("owner {owner}")));
    bounds.extend(permit.expires.map(|at| format!("until {}", rfc3339(at))));
    bounds
}

pub(super) fn all(home: &Home, rows: &[(Granted, Vec<Balance>)]) -> anyhow::Result<()> {
    if home.json() {
        let lines: anyhow::Result<String> =
            rows.iter().map(|(found, left)| print::json(&as_json(found, Some(left)), true)).collect();
        return print::out(&lines?);
    }
    if rows.is_empty() {
        return print::out("there are no permits\n");
    }
    let cells: Vec<Vec<Cell>> = rows.iter().map(|(found, left)| cells(found, left)).collect();
    let header = ["permit", "tenant", "state", "effects", "sums", "operations", "until", "grant"];
    print::out(&print::table(&header, &cells))
}

fn cells(found: &Granted, left: &[Balance]) -> Vec<Cell> {
    let permit = &found.permit;
    let state = state(found);
    let tone = if state == "active" { Tone::Good } else { Tone::Plain };
    let mut used = left.iter().map(words);
    let count = used.next().unwrap_or_default();
    let sums: Vec<String> = permit.sums.iter().zip(used).map(|(sum, words)| format!("{} {words}", sum.field)).collect();
    vec![
        Cell::new(clean(&permit.id)),
        Cell::new(clean(&permit.tenant)),
        Cell::toned(tone, state),
        Cell::new(count),
        Cell::new(clean(&sums.join(", "))),
        Cell::new(clean(&permit.operations.join(", "))),
        Cell::new(permit.expires.map(rfc3339).unwrap_or_default()),
        Cell::new(clean(&permit.grant)),
    ]
}

fn words(balance: &Balance) -> String {
    match balance.granted {
        Some(granted) => format!("{} of {granted}", balance.used),
        None => balance.used.to_string(),
    }
}

/// By this machine's clock; a dispatch goes by the latest one known.
fn state(found: &Granted) -> &'static str {
    if found.revoked.is_some() {
        "revoked"
    } else if found.permit.expires.is_some_and(|at| at <= now_ms()) {
        "expired"
    } else {
        "active"
    }
}

fn as_json(found: &Granted, left: Option<&[Balance]>) -> Value {
    let decision = |by: &Decision| json!({ "actor": by.actor, "reason": by.reason, "at": rfc3339(by.at) });
    let mut value = json!({
        "permit": found.permit,
        "state": state(found),
        "granted": decision(&found.granted),
        "revoked": found.revoked.as_ref().map(decision),
        "until": found.permit.expires.map(rfc3339),
    });
    if let Some((count, sums)) = left.and_then(<[Balance]>::split_first) {
        let balance = |balance: &Balance| {
            let left = balance.granted.map(|granted| granted.saturating_sub(balance.used));
            json!({ "granted": balance.granted, "used": balance.used, "left": left })
        };
        let sums = found.permit.sums.iter().zip(sums).map(|(sum, left)| (sum.field.clone(), balance(left)));
        value["effects"] = balance(count);
        value["sums"] = Value::Object(sums.collect());
    }
    value
}
