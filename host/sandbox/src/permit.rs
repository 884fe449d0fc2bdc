//! Permits: what an operator lets happen, how often, how much of it, and until when.
//!
//! A permit is three kinds of streams: one for its document, which is granted and perhaps revoked; one
//! balance that counts effects; and one balance for each sum. Effects reserve their part of the balances
//! in the commit that dispatches them, so that no number of callers overspends one.

use oncegate_contract::{Resolved, Role};
use oncegate_ledger::{Append, Event, Expect, Ledger, LedgerError, Record, Stored, StreamId};
use serde::{Deserialize, Serialize};

/// A balance that no number of effects uses up.
const UNBOUNDED: u64 = u64::MAX;

/// What a permit allows, as the ledger keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// Its name; orchestrators give it as the fact `permit`.
    pub id: String,
    /// For whose effects.
    pub tenant: String,
    /// What it is given under: another permit of the same grant may continue a key.
    pub grant: String,
    /// Only effects of this component, as `sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Only effects of this owner: the name of a contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The operations it covers.
    pub operations: Vec<String>,
    /// At most so many effects; none: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bounds on the sums of fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<Sum>,
    /// Until then, in milliseconds of Unix time; none: no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// A bound on the sum of one field over all effects of a permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The field, a key or bound one with whole numbers.
    pub field: String,
    /// At most so much.
    pub max: u64,
    /// The currency, for a field that has one: its minor units are added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

impl Sum {
    /// `FIELD=MAX`, or `FIELD=MAX:CURRENCY` for a field that has one.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let asked = "expected FIELD=MAX or FIELD=MAX:CURRENCY, such as amount=500000:USD";
        let (field, rest) = text.split_once('=').ok_or(asked)?;
        let (max, currency) = match rest.split_once(':') {
            Some((max, currency)) => (max, Some(currency)),
            None => (rest, None),
        };
        let code = |code: &str| code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase());
        if oncegate_contract::safe_text(field) != field || currency.is_some_and(|currency| !code(currency)) {
            return Err(asked.to_owned());
        }
        let max = max.parse().map_err(|_| asked)?;
        Ok(Self { field: field.to_owned(), max, currency: currency.map(str::to_owned) })
    }

    /// What the values add to the sum; none when they have no such whole number.
    fn part(&self, values: &Resolved) -> Option<u64> {
        let field = values.field(&self.field).filter(|field| matches!(field.role, Role::Key | Role::Bound))?;
        let normal = field.normal.as_deref()?;
        let (number, currency) = match normal.split_once(' ') {
            Some((number, currency)) => (number, Some(currency)),
            None => (normal, None),
        };
        if currency != self.currency.as_deref() {
            return None;
        }
        number.parse().ok()
    }
}

/// Who did something to a permit, why and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: u64,
}

/// A permit as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// What it allows.
    pub permit: Permit,
    /// The version of its document's stream.
    pub version: u64,
    /// The place of its grant in the ledger.
    pub seq: u64,
    /// By whom.
    pub granted: Decision,
    /// Since when it allows nothing more.
    pub revoked: Option<Decision>,
}

/// What is left of a balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// Granted; none: no bound.
    pub granted: Option<u64>,
    /// Reserved and not given back.
    pub used: u64,
}

/// A part of a balance: its stream, and how much of it.
pub(crate) type Part = (StreamId, u64);

impl Permit {
    /// The stream of its document.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId::permit(&self.tenant, &self.id)
    }

    /// The streams of its balances: of effects, then of each sum.
    #[must_use]
    pub fn balances(&self) -> Vec<StreamId> {
        let sums = self.sums.iter().map(|sum| StreamId::permit_sum(&self.tenant, &self.id, &sum.field));
        std::iter::once(StreamId::permit_count(&self.tenant, &self.id)).chain(sums).collect()
    }

    /// What one commit stores to grant it; refused as a conflict when it was granted before.
    #[must_use]
    pub fn grant(&self, decision: &Decision) -> Vec<Append> {
        let document = serde_json::to_vec(self).unwrap_or_default();
        let granted = |amount, document: Stored| {
            let Decision { actor, reason, at } = decision.clone();
            Event::PermitGranted { amount, document, actor, reason, at }
        };
        let amounts = std::iter::once(self.count.unwrap_or(UNBOUNDED)).chain(self.sums.iter().map(|sum| sum.max));
        let balances = self.balances().into_iter().zip(amounts);
        let mut appends = vec![Append::new(self.stream(), Expect::Version(0), granted(0, document.into()))];
        appends.extend(
            balances.map(|(stream, amount)| Append::new(stream, Expect::Version(0), granted(amount, Stored::empty()))),
        );
        appends
    }

    /// Whether it is for this component and operation.
    pub(crate) fn covers(&self, digest: &str, owner: &str, operation: &str) -> bool {
        self.operations.iter().any(|name| name == operation)
            && self.component.as_deref().is_none_or(|component| component == digest)
            && self.owner.as_deref().is_none_or(|name| name == owner)
    }

    /// What an effect with these values uses of each balance; none when it has no number for a sum.
    pub(crate) fn parts(&self, values: &Resolved) -> Option<Vec<Part>> {
        let mut amounts = vec![1];
        for sum in &self.sums {
            amounts.push(sum.part(values)?);
        }
        Some(self.balances().into_iter().zip(amounts).collect())
    }
}

impl Granted {
    /// What one commit stores to revoke it; refused as a conflict when it has changed since it was read.
    #[must_use]
    pub fn revoke(&self, decision: &Decision) -> Vec<Append> {
        let Decision { actor, reason, at } = decision.clone();
        let event = Event::PermitRevoked { actor, reason, at };
        vec![Append::new(self.permit.stream(), Expect::Version(self.version), event)]
    }

    /// What is left of its balances, in the order of [`Permit::balances`].
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub async fn left(&self, ledger: &dyn Ledger) -> Result<Vec<Balance>, LedgerError> {
        let mut balances = Vec::new();
        for stream in self.permit.balances() {
            balances.push(balance(&ledger.read(stream).await?));
        }
        Ok(balances)
    }
}

/// The permit that these records of its document's stream tell of; none where they are of a balance or
/// of something else.
///
/// # Errors
/// The ledger's, when the document cannot be loaded; [`LedgerError::Damaged`] when it is no permit.
pub async fn granted(ledger: &dyn Ledger, records: &[Record]) -> Result<Option<Granted>, LedgerError> {
    let Some((first, rest)) = records.split_first() else { return Ok(None) };
    let Event::PermitGranted { document, actor, reason, at, .. } = &first.event else { return Ok(None) };
    if document.is_empty() {
        return Ok(None);
    }
    let document = ledger.load(document).await?;
    let permit = serde_json::from_slice(&document)
        .map_err(|error| LedgerError::Damaged { why: format!("a permit's document cannot be read: {error}") })?;
    let revoked = rest.iter().find_map(|record| match &record.event {
        Event::PermitRevoked { actor, reason, at } => {
            Some(Decision { actor: actor.clone(), reason: reason.clone(), at: *at })
        }
        _ => None,
    });
    let granted = Decision { actor: actor.clone(), reason: reason.clone(), at: *at };
    Ok(Some(Granted { permit, version: records.len() as u64, seq: first.seq, granted, revoked }))
}

/// The permit of that name.
///
/// # Errors
/// Those of [`granted`].
pub async fn find(ledger: &dyn Ledger, tenant: &str, id: &str) -> Result<Option<Granted>, LedgerError> {
    granted(ledger, &ledger.read(StreamId::permit(tenant, id)).await?).await
}

/// When something ends: a time, a date (the start of that day in UTC), or so long after `now`.
///
/// # Errors
/// What is wrong with the text, or that it is over already.
pub fn expiry(text: &str, now: u64) -> Result<u64, String> {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let length = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let at = match time(text).or_else(|| time(&format!("{text}T00:00:00Z"))) {
        Some(at) => u64::try_from(at.as_millisecond()).ok(),
        None => crate::policy::duration_of(text).map(|duration| now.saturating_add(length(duration))),
    };
    match at {
        None => Err("expected a time such as 2027-01-31T18:00:00Z, a date, or a duration such as 36h or 7d".to_owned()),
        Some(at) if at <= now => Err("that is over already".to_owned()),
        Some(at) => Ok(at),
    }
}

fn balance(records: &[Record]) -> Balance {
    records.iter().fold(Balance { granted: Some(0), used: 0 }, |mut balance, record| {
        match record.event {
            Event::PermitGranted { amount, .. } => balance.granted = (amount != UNBOUNDED).then_some(amount),
            Event::PermitReserved { amount, .. } => balance.used = balance.used.saturating_add(amount),
            Event::PermitReleased { amount, .. } => balance.used = balance.used.saturating_sub(amount),
            _ => {}
        }
        balance
    })
}
