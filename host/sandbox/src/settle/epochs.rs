//! Which epoch of one effect a call hears of.

use oncegate_ledger::state::{Effect, StateTag};

use crate::call::Call;

/// The rows that this call hears of, of each effect one epoch.
pub(crate) fn heard_by(call: &Call, rows: &[([u8; 32], Effect)]) -> Vec<[u8; 32]> {
    let followed = |row: &Effect| match &row.superseded_by {
        Some(later) => call.is_named(&later.for_whom),
        None => row.state == StateTag::Undone,
    };
    let heard = |row: &Effect| {
        let others = rows.iter().map(|(_, other)| other).filter(|other| is_same(row, other));
        let mut others = others.peekable();
        let later = |other: &Effect| other.epoch > row.epoch;
        if followed(row) {
            return !others.any(later);
        }
        others.all(|other| other.epoch >= row.epoch || followed(other))
    };
    rows.iter().filter(|(_, row)| heard(row)).map(|(key, _)| *key).collect()
}

/// The same effect at whatever epoch.
fn is_same(one: &Effect, other: &Effect) -> bool {
    one.epoch != other.epoch && one.label() == other.label() && whose(one) == whose(other)
}

fn whose(row: &Effect) -> Option<[&str; 4]> {
    let dispatch = row.dispatch.as_deref().map(|d| [d.tenant.as_str(), &d.account, &d.owner, &d.action]);
    dispatch.or(row.proposal.as_deref().map(|p| [p.tenant.as_str(), &p.account, &p.owner, &p.action]))
}
