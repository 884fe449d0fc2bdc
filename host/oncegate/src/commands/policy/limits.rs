//! `oncegate policy limits`: every limit from one table, with the value that the policy gives it.

use oncegate_sandbox::limits::{LIMITS, Limit, Limits, Unit, words};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Cell, Tone};

pub(super) fn run(home: &Home) -> anyhow::Result<Exit> {
    let limits = home.policy()?.limits;
    print::out(&if home.json() { as_json(&limits)? } else { as_text(&limits) })?;
    Ok(Exit::Ok)
}

fn as_json(limits: &Limits) -> anyhow::Result<String> {
    let all: Vec<Value> = LIMITS
        .iter()
        .map(|limit| {
            json!({
                "name": limit.name,
                "value": limit.under(limits),
                "default": limit.default(),
                "unit": unit(limit.unit),
                "overridable": limit.overridable(),
                "beyond": limit.over.word(),
                "reason": limit.reason,
            })
        })
        .collect();
    print::json(&json!({ "limits": all }), true)
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Time => "milliseconds",
        Unit::Count => "count",
    }
}

fn as_text(limits: &Limits) -> String {
    let row = |limit: &Limit| {
        let (value, default) = (limit.under(limits), limit.default());
        let tone = if value == default { Tone::Plain } else { Tone::Warn };
        let set = if limit.overridable() { "policy" } else { "fixed" };
        vec![
            Cell::new(limit.name),
            Cell::toned(tone, words(value, limit.unit)),
            Cell::new(words(default, limit.unit)),
            Cell::new(set),
            Cell::new(limit.over.word()),
            Cell::new(limit.reason),
        ]
    };
    let rows: Vec<_> = LIMITS.iter().map(row).collect();
    print::table(&["limit", "value", "default", "set by", "beyond it", "reason"], &rows)
}
