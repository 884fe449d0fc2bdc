//! What an identical call hears, from the row alone.

use super::{Effect, StateTag, Supersession};

/// What is known of the task that sends the open attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// It runs.
    Running,
    /// Its task ended, its host's lock was released, or an operator fenced it.
    Stopped,
    /// Its host cannot be asked. Silence is not a stop.
    NotKnown,
}

/// What to do with a call that names this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing has happened: permits and approvals allowing, send under this generation.
    Dispatch {
        /// The generation of the dispatch.
        generation: u32,
    },
    /// Done: give the stored answer.
    Replay,
    /// An attempt is under way.
    InProgress,
    /// An attempt is open and nobody is known to send it: append `Lost` (with `sender_stopped` only
    /// for [`Sender::Stopped`]) and ask again.
    SenderLost,
    /// An answer is stored and not judged: judge it.
    Classify,
    /// Nobody knows: settle, or resend where that is allowed.
    Settle,
    /// Exists, not final.
    Issued,
    /// Exists and can never be completed.
    Stranded,
    /// Contradicted; only an operator goes on.
    Frozen,
    /// A person has to decide. With differing fields the host appends an amendment first.
    AwaitingApproval,
    /// Must not happen at this epoch.
    Revoked,
    /// It was undone by its own operation: the next call is a new epoch.
    NextEpoch {
        /// That epoch.
        epoch: u32,
    },
    /// An operator opened a later epoch for some; the others hear this one.
    Superseded {
        /// The later epoch.
        epoch: u32,
        /// Who may use it.
        for_whom: String,
        /// What everybody else hears.
        earlier: Box<Answer>,
    },
    /// Same key, other bound values: the fields that differ.
    KeyReused(Vec<String>),
}

/// What a call with this key hears. `differing` names its bound fields that differ from the row's;
/// they come before the state.
pub fn answer(effect: Option<&Effect>, differing: &[String], sender: Sender) -> Answer {
    let Some(effect) = effect else {
        return Answer::Dispatch { generation: 0 };
    };
    if let Some(Supersession { epoch, for_whom, before }) = &effect.superseded_by {
        let earlier = Box::new(answer_as(effect, *before, differing, sender));
        return Answer::Superseded { epoch: *epoch, for_whom: for_whom.clone(), earlier };
    }
    answer_as(effect, effect.state, differing, sender)
}

fn answer_as(effect: &Effect, state: StateTag, differing: &[String], sender: Sender) -> Answer {
    if state == StateTag::Undone && !effect.frozen {
        return Answer::NextEpoch { epoch: effect.epoch.saturating_add(1) };
    }
    if effect.binds() && !differing.is_empty() {
        return Answer::KeyReused(differing.to_vec());
    }
    if effect.frozen {
        return Answer::Frozen;
    }
    let may_send_by_state = matches!(state, StateTag::Planned | StateTag::NoEffect | StateTag::AwaitingApproval);
    if may_send_by_state && effect.unclassified_attempt().is_some() {
        return Answer::Classify; // A late answer may contradict the proof: judge it before sending.
    }
    // A superseded row keeps its answers and never sends again.
    let may_send = effect.superseded_by.is_none();
    match state {
        StateTag::Planned | StateTag::NoEffect if may_send => Answer::Dispatch { generation: effect.next_generation() },
        StateTag::Planned | StateTag::NoEffect | StateTag::Revoked => Answer::Revoked,
        StateTag::AwaitingApproval if effect.approved.is_some() && differing.is_empty() && may_send => {
            Answer::Dispatch { generation: effect.next_generation() }
        }
        StateTag::AwaitingApproval => Answer::AwaitingApproval,
        StateTag::Dispatched => match sender {
            Sender::Running => Answer::InProgress,
            Sender::Stopped | Sender::NotKnown => Answer::SenderLost,
        },
        StateTag::Responded => Answer::Classify,
        StateTag::Done => Answer::Replay,
        StateTag::Issued => Answer::Issued,
        StateTag::Stranded => Answer::Stranded,
        StateTag::Unknown => Answer::Settle,
        StateTag::Undone => Answer::NextEpoch { epoch: effect.epoch.saturating_add(1) },
        // Unreachable as `before`; refusing is the safe answer.
        StateTag::Superseded => Answer::Revoked,
    }
}
