//! Finding out by a lookup whether an effect exists: what is asked, and which candidate is it.

use serde_json::Value as Json;

use crate::answer::{Answer, found, receipt};
use crate::field::{Currency, Field, Role};
use crate::json::parse_json;
use crate::limits::CANDIDATES_MAX;
use crate::operation::{Operation, Settle};
use crate::place::Place;
use crate::pointer::Pointer;
use crate::resolve::Resolved;
use crate::value::Value;

/// What a settle lookup's answer shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matches {
    /// Exactly one object is this effect.
    One {
        /// Its receipt.
        receipt: String,
        /// Fields of `must-equal` that differ.
        mismatched: Vec<String>,
    },
    /// More than one could be.
    Many {
        /// Their receipts.
        receipts: Vec<String>,
    },
    /// None is, in an answer that would have shown it.
    Absent,
    /// The answer decides nothing.
    Undetermined {
        /// Why not.
        why: String,
    },
}

/// The values for the settle lookup's fields, by the lookup's names.
pub fn settle_fields(operation: &Operation, resolved: &Resolved, downstream_key: &str) -> Vec<(String, Value)> {
    let Some(settle) = &operation.settle else {
        return Vec::new();
    };
    let value = |ours: &String| match resolved.field(ours) {
        Some(field) => Some(field.value.clone()),
        None if ours == "reference" && operation.field(ours).is_none() => Some(Value::Text(downstream_key.to_owned())),
        None => None,
    };
    settle.with.iter().filter_map(|(theirs, ours)| Some((theirs.clone(), value(ours)?))).collect()
}

/// Looks for this effect among the candidates of a settle lookup's answer.
///
/// Candidates are matched by the reference when the contract declares one, else by all key parts.
/// Objects whose receipts are in `taken` belong to other rows and are not found.
pub fn match_candidates(
    operation: &Operation,
    lookup: &Operation,
    resolved: &Resolved,
    downstream_key: &str,
    answer: &Answer,
    taken: &[String],
) -> Matches {
    let Some(settle) = &operation.settle else {
        return undetermined("the operation has no settle rule");
    };
    let gone = settle.each.is_none() && answer.complete && matches!(answer.status, 404 | 410);
    if gone {
        return Matches::Absent;
    }
    if !found(lookup, answer) {
        return undetermined("the settle lookup did not find an answer");
    }
    let body = match parse_json(&answer.body) {
        Ok(body) => body,
        Err(why) => return undetermined(&why),
    };
    let candidates = match candidates(settle, &body) {
        Ok(candidates) => candidates,
        Err(why) => return undetermined(&why),
    };
    let search = Search { operation, settle, resolved, downstream_key, taken };
    let more = settle.each.is_some() && has_more(&body, candidates.len(), answer);
    search.judge(&candidates, more)
}

fn undetermined(why: &str) -> Matches {
    Matches::Undetermined { why: why.to_owned() }
}

fn candidates<'a>(settle: &Settle, body: &'a Json) -> Result<Vec<&'a Json>, String> {
    let Some(each) = &settle.each else {
        return Ok(vec![body]);
    };
    match each.get(body) {
        Some(Json::Array(list)) if list.len() <= CANDIDATES_MAX => Ok(list.iter().collect()),
        Some(Json::Array(_)) => Err(format!("more than {CANDIDATES_MAX} candidates")),
        _ => Err(format!("the answer has no list of candidates at {each}")),
    }
}

/// Members by which providers say that a list goes on.
const MORE: &[&str] = &[
    "/has_more",
    "/hasMore",
    "/next",
    "/next_page",
    "/nextPage",
    "/next_cursor",
    "/nextCursor",
    "/nextPageToken",
    "/next_page_token",
    "/links/next",
    "/_links/next",
    "/meta/next",
    "/pagination/next",
    "/paging/next",
    "/response_metadata/next_cursor",
];

/// Members by which providers say how long the whole list is.
const TOTALS: &[&str] = &["/total", "/total_count", "/totalCount", "/meta/total", "/pagination/total"];

fn has_more(body: &Json, shown: usize, answer: &Answer) -> bool {
    let says = |json: &Json| match json {
        Json::Bool(truth) => *truth,
        Json::String(text) => !text.is_empty(),
        Json::Null => false,
        _ => true,
    };
    let at = |text: &&str| Pointer::parse(text).ok()?.get(body);
    let longer = |json: &Json| json.as_u64().is_some_and(|total| total > shown as u64);
    let link = |(name, value): &(String, Vec<u8>)| {
        name.eq_ignore_ascii_case("link") && {
            let text = String::from_utf8_lossy(value);
            text.contains("rel=\"next\"") || text.contains("rel=next")
        }
    };
    MORE.iter().filter_map(at).any(says) || TOTALS.iter().filter_map(at).any(longer) || answer.headers.iter().any(link)
}

struct Search<'a> {
    operation: &'a Operation,
    settle: &'a Settle,
    resolved: &'a Resolved,
    downstream_key: &'a str,
    taken: &'a [String],
}

impl Search<'_> {
    fn judge(&self, candidates: &[&Json], more: bool) -> Matches {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for candidate in candidates {
            match self.matches(candidate) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => return Matches::Undetermined { why },
            }
            let receipt = match receipt(&self.settle.receipt, candidate) {
                Ok(receipt) => receipt,
                Err(why) => return Matches::Undetermined { why },
            };
            if !self.taken.contains(&receipt) && !found.iter().any(|(known, _)| *known == receipt) {
                found.push((receipt, self.mismatched(candidate)));
            }
        }
        // A reference names exactly this effect; other matches could have twins on a later page.
        let conclusive = !more || (self.operation.reference.is_some() && !found.is_empty());
        match (found.len(), conclusive) {
            (0 | 1, false) => undetermined("the list goes on: what is not on this page may be on another"),
            (0, true) => Matches::Absent,
            (1, true) => {
                found.pop().map_or(Matches::Absent, |(receipt, mismatched)| Matches::One { receipt, mismatched })
            }
            _ => Matches::Many { receipts: found.into_iter().map(|(receipt, _)| receipt).collect() },
        }
    }

    fn matches(&self, candidate: &Json) -> Result<bool, String> {
        if let Some(reference) = &self.operation.reference {
            let pointer = self.settle.reference.clone().or_else(|| reference.mirrored());
            let pointer = pointer.ok_or("the contract does not say where a candidate shows the reference")?;
            return Ok(pointer.get(candidate).and_then(Json::as_str) == Some(self.downstream_key));
        }
        let mut compared = false;
        for field in self.operation.fields.iter().filter(|f| f.role == Role::Key) {
            let pointer = self.shown(field).ok_or_else(|| format!("no place shows the key part {}", field.name))?;
            if !self.equal(field, &pointer, candidate) {
                return Ok(false);
            }
            compared = true;
        }
        if self.operation.repeat.is_some() {
            return Err("effects that repeat are told apart by a reference only; the contract declares none".into());
        }
        if compared { Ok(true) } else { Err("there is nothing to match candidates by".into()) }
    }

    fn shown(&self, field: &Field) -> Option<Pointer> {
        let named = self.settle.matching.get(&field.name).or_else(|| self.settle.must_equal.get(&field.name));
        named.cloned().or_else(|| field.at.as_ref().and_then(Place::mirrored))
    }

    fn mismatched(&self, candidate: &Json) -> Vec<String> {
        let named = self.settle.must_equal.iter();
        let differs = named.filter(|(name, pointer)| {
            self.operation.field(name).is_none_or(|field| !self.equal(field, pointer, candidate))
        });
        differs.map(|(name, _)| name.clone()).collect()
    }

    /// Compares normal forms, so that a provider's other spelling of one value is that value.
    fn equal(&self, field: &Field, pointer: &Pointer, candidate: &Json) -> bool {
        let ours = self.resolved.field(&field.name);
        let Some(theirs) = pointer.get(candidate) else {
            return ours.is_none();
        };
        let Some(ours) = ours else { return false };
        let currency = match &field.currency {
            Some(Currency::Code(code)) => Some(code.clone()),
            Some(Currency::Field(name)) => self.resolved.field(name).map(|f| f.value.canonical()),
            None => None,
        };
        let theirs = crate::resolve::reread(field, theirs, currency.as_deref());
        let normal = ours.normal.clone().unwrap_or_else(|| ours.value.canonical());
        theirs.is_some_and(|theirs| theirs == normal)
    }
}
