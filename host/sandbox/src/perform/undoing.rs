//! Operations that undo others: the effect is named by its receipt, and is undone in the commit in which
//! the undoing one is done.
//!
//! Only what this ledger knows to exist is undone. What may not exist yet cannot be: an object that is
//! removed while nobody knows of it would be taken for made when its own answer comes.

use oncegate_contract::{Operation, Resolved, Revokes};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, Event, Expect, StreamId};

use super::{Passage, Wanted, bindings, ledger_stop};
use crate::call::Call;
use crate::host::Book;
use crate::outcome::Detail;
use crate::stop::Stop;

/// Rows looked at in one page.
const PAGE: usize = 256;
/// States in which an effect may have come to be, and nobody knows its receipt.
const MAY_EXIST: [StateTag; 3] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown];

/// Whose effects are undone, and which.
struct Undoing<'a> {
    book: &'a Book,
    revokes: &'a Revokes,
    tenant: &'a str,
    owner: String,
    /// The one that the keys of what is undone are made with.
    account: String,
    receipt: String,
}

/// What a receipt names.
enum Target {
    /// Nothing of this owner's.
    Nothing,
    /// This effect.
    One([u8; 32], Box<Effect>),
}

/// The epoch of the effect that is undone: to undo it, do it again and undo it again are two undoings.
/// Operations that undo nothing begin at the first.
pub(super) async fn epoch(
    call: &Call,
    book: &Book,
    operation: &Operation,
    account: &str,
    resolved: &Resolved,
) -> Result<u32, Stop> {
    match Undoing::of(call, book, operation, account, resolved).await? {
        None => Ok(0),
        Some(undoing) => Ok(match undoing.target().await? {
            Target::Nothing => 0,
            Target::One(_, row) => row.epoch,
        }),
    }
}

impl Wanted<'_> {
    /// Ties the effect to the one that it undoes.
    pub(super) async fn undoing(&self, passage: &mut Passage) -> Result<(), Stop> {
        let undoing = Undoing::of(self.call, self.book, self.operation, &self.account, &self.resolved).await?;
        let Some(undoing) = undoing else { return Ok(()) };
        let (key, row) = match undoing.target().await? {
            Target::One(key, row) => (key, row),
            Target::Nothing => return undoing.nothing_may_be_it().await,
        };
        if row.epoch > self.epoch {
            // It was undone and done again while this call was on its way.
            return Err(Stop::InProgress);
        }
        let undone = row.state == StateTag::Undone;
        if undone && self.row().await?.is_some_and(|own| own.heard_state() == StateTag::Done) {
            // By this very effect, while this call was on its way: its row answers the next call.
            return Err(Stop::InProgress);
        }
        match row.state {
            _ if row.frozen => return Err(Stop::Unsettled(Detail::Frozen)),
            StateTag::Done | StateTag::Superseded => {}
            StateTag::Undone => return Err(refused("what it would undo was undone already")),
            state => {
                return Err(refused(&format!(
                    "what it would undo is {state}: what may not exist yet, or is not final, cannot be undone"
                )));
            }
        }
        passage.also.push(Append::guard(StreamId::effect(key), Expect::Version(row.version)));
        passage.ties.undoes = Some(key.into());
        Ok(())
    }
}

impl<'a> Undoing<'a> {
    async fn of(
        call: &'a Call,
        book: &'a Book,
        operation: &'a Operation,
        account: &str,
        resolved: &Resolved,
    ) -> Result<Option<Self>, Stop> {
        let Some(revokes) = &operation.revokes else { return Ok(None) };
        let field = operation.fields.iter().find(|field| field.at.as_ref() == Some(&revokes.at));
        let value = field.and_then(|field| resolved.field(&field.name)).map(|field| field.value.canonical());
        let receipt = value.ok_or_else(|| Stop::InvalidField("no field says what is undone".to_owned()))?;
        let owner = call.owner()?.owner;
        // An account that was renamed keeps its first label for what was bound before, and has the new
        // one for an undoing operation that is first used now.
        let account = match call.contract().operations.get(&revokes.operation) {
            Some(undone) => match bindings::label(call, undone) {
                Ok(today) => bindings::account(call, book, undone, today).await?,
                Err(_) => account.to_owned(),
            },
            None => account.to_owned(),
        };
        Ok(Some(Self { book, revokes, tenant: call.tenant(), owner, account, receipt }))
    }

    /// The effect with this receipt. One that exists comes before those that are over; of these the
    /// latest counts.
    async fn target(&self) -> Result<Target, Stop> {
        let mut ours = Vec::new();
        for key in self.known_by_receipt().await? {
            let Some(row) = self.get(key).await? else { continue };
            if self.is_ours(&row) && row.receipt.as_ref() == Some(&self.receipt) {
                ours.push((key, row));
            }
        }
        if ours.iter().filter(|(_, row)| row.state == StateTag::Done).count() > 1 {
            return Err(refused("more than one effect has this receipt; a person decides"));
        }
        ours.sort_by_key(|(_, row)| (row.state == StateTag::Done, row.epoch, row.updated_at));
        Ok(ours.pop().map_or(Target::Nothing, |(key, row)| Target::One(key, Box::new(row))))
    }

    async fn known_by_receipt(&self) -> Result<Vec<[u8; 32]>, Stop> {
        let id = StreamId::receipt(&self.account, &self.receipt);
        let records = self.book.effects.of_receipt(id).await.map_err(|error| ledger_stop(error.into()))?;
        let mut keys: Vec<[u8; 32]> = records
            .into_iter()
            .filter_map(|record| match record.event {
                Event::ReceiptKnown { effect } => Some(effect),
                _ => None,
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// No effect whose receipt is not known yet may turn out to be the object that would be removed.
    async fn nothing_may_be_it(&self) -> Result<(), Stop> {
        for state in MAY_EXIST {
            let mut after = None;
            loop {
                let page = self.book.effects.ledger.list(state, after, PAGE).await;
                let page = page.map_err(|error| ledger_stop(error.into()))?;
                let Some(last) = page.last().copied() else { break };
                after = Some(last);
                for id in page {
                    if self.get(id.id).await?.is_some_and(|row| self.is_ours(&row) && row.receipt.is_none()) {
                        return Err(refused(&format!(
                            "an effect of {} is {state} and may be what this would undo",
                            self.revokes.operation
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    async fn get(&self, key: [u8; 32]) -> Result<Option<Effect>, Stop> {
        self.book.effects.get(key).await.map_err(|error| ledger_stop(error.into()))
    }

    /// An effect of the named operation, of the same owner for the same tenant at the same account.
    fn is_ours(&self, row: &Effect) -> bool {
        let wanted = [self.tenant, &self.account, &self.owner, self.revokes.operation.as_str()];
        row.names()
            .is_some_and(|[tenant, account, owner, _, _, operation]| [tenant, account, owner, operation] == wanted)
    }
}

fn refused(why: &str) -> Stop {
    Stop::NotPermitted(format!("Nothing was sent: {why}."))
}
