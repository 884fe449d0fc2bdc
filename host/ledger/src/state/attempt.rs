//! One attempt to send, as its events left it.

use crate::{Dispatch, Outcome};

/// Judging one stored answer is tried so often before the attempt is unknown.
pub(super) const CLASSIFY_FAILURES_MAX: u8 = 2;

/// One try to send under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its random name.
    pub id: [u8; 16],
    /// The host incarnation that sends.
    pub host: [u8; 16],
    /// The generation it belongs to.
    pub generation: u32,
    /// When it was dispatched.
    pub at: u64,
    /// When it ended: answered, lost, or not sent.
    pub ended: Option<u64>,
    /// Proof that it had no effect: its own answer, zero bytes over direct egress, an `absent`
    /// verdict after it ended, or an operator.
    pub proof: bool,
    /// Application bytes handed over, where known.
    pub sent_bytes: Option<u64>,
    /// Its sender is known to have stopped.
    pub stopped: bool,
    /// Its raw answer is stored.
    pub responded: bool,
    /// What the answer was judged to be.
    pub outcome: Option<Outcome>,
    /// How often judging it failed.
    pub classify_failures: u8,
    /// The stored request was sent again.
    pub resend: bool,
    /// Bytes handed over reach the provider itself.
    pub egress_direct: bool,
}

impl Attempt {
    pub(super) fn new(dispatch: &Dispatch) -> Attempt {
        Attempt {
            id: dispatch.attempt,
            host: dispatch.host,
            generation: dispatch.generation,
            at: dispatch.at,
            ended: None,
            proof: false,
            sent_bytes: None,
            stopped: false,
            responded: false,
            outcome: None,
            classify_failures: 0,
            resend: dispatch.resend,
            egress_direct: dispatch.egress_direct,
        }
    }

    /// Neither answered nor ended: bytes may be leaving now.
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// Its answer is stored and not judged.
    pub fn awaits_classification(&self) -> bool {
        self.responded && self.outcome.is_none()
    }
}
