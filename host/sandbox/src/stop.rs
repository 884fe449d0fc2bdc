//! Why an operation was not performed now: what the guest hears, and what the agent is told.

use crate::outcome::{Code, Detail};

/// Why an operation gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    /// Contract or policy do not allow it.
    #[error("{0}")]
    NotPermitted(String),
    /// A value does not fit the contract.
    #[error("{0}")]
    InvalidField(String),
    /// The orchestrator did not give this fact.
    #[error("The orchestrator did not give the fact {0}; nothing was sent.")]
    ContextMissing(String),
    /// The limit of this name is used up.
    #[error("The tool exceeded the limit {0}; nothing was sent.")]
    Limit(String),
    /// The same identity with other values in these fields.
    #[error("The same effect was asked for before with other values of {}; nothing was sent.", .0.join(", "))]
    KeyReused(Vec<String>),
    /// The client's own key was used for something else.
    #[error(
        "The client's idempotency key was first used for another effect than this; nothing was sent. Client and tool \
         disagree about which call this is."
    )]
    ClientKeyReused,
    /// Another call performs it.
    #[error("It is being performed.")]
    InProgress,
    /// It exists or may exist, and is not settled.
    #[error("It is not settled.")]
    Unsettled(Detail),
    /// A person decides.
    #[error("A person has to approve it first; nothing was sent.")]
    AwaitingApproval,
    /// A person approved it whose approval does not count.
    #[error("It was approved by nobody whose approval counts, and a person has to approve it; nothing was sent.")]
    ApprovalDoesNotCount,
    /// Another effect, with this key, has the purpose for itself.
    #[error("Another effect serves the same purpose; nothing was sent.")]
    Claimed([u8; 32]),
    /// The permit does not let it happen.
    #[error("{0}")]
    PermitExceeded(&'static str),
    /// It was revoked.
    #[error("It was revoked; nothing was sent.")]
    Revoked,
    /// The key is derived in another way than the ledger knows.
    #[error("This tool identifies its effects in another way than the one that was used before; nothing was sent.")]
    RecipeChanged,
    /// The provider account is another than the one bound at first use.
    #[error("The account at the provider is another than the one used before; nothing was sent.")]
    AccountChanged,
    /// The component's effects are on record under another owner.
    #[error("The effects of this tool are on record under another owner than the one it has now; nothing was sent.")]
    OwnerChanged {
        /// The owner on record.
        before: String,
    },
    /// The owner's effects are on record for components that are known otherwise.
    #[error("The name of this tool is on record for another tool than this one; nothing was sent.")]
    OwnerHeld {
        /// By what those are known.
        by: String,
    },
    /// The previous one of the sequence is missing or not decided.
    #[error("{0}")]
    SequenceGap(String),
    /// The plan that was named does not have this effect, or has other values for it.
    #[error("{0}")]
    PlanMismatch(String),
    /// Nothing was sent since the ledger cannot be written.
    #[error("The ledger cannot be used, so nothing was sent: {0}.")]
    LedgerUnavailable(String),
    /// Nothing was sent since the operator's set-up lacks something.
    #[error("Nothing was sent: {0}.")]
    NotSetUp(String),
    /// Nothing was sent, which is on record.
    #[error("Nothing was sent: {0}.")]
    NotSent(String),
    /// A lookup gave no usable answer.
    #[error("{0}")]
    Unavailable(String),
}

impl Stop {
    /// The limit that was exceeded, when that is why.
    pub(crate) fn limit(&self) -> Option<&str> {
        match self {
            Self::Limit(name) => Some(name),
            _ => None,
        }
    }

    /// The refusal that the agent is told, when it is one. What is open is told from the row.
    pub(crate) fn code(&self) -> Option<Code> {
        Some(match self {
            Self::NotPermitted(_) | Self::AccountChanged | Self::OwnerChanged { .. } | Self::OwnerHeld { .. } => {
                Code::EffectNotPermitted
            }
            Self::InvalidField(_) => Code::InvalidArguments,
            Self::ContextMissing(_) => Code::ContextMissing,
            Self::Limit(_) => Code::ToolLimit,
            Self::KeyReused(_) | Self::ClientKeyReused => Code::IdempotencyKeyReused,
            Self::Revoked => Code::Revoked,
            Self::RecipeChanged => Code::RecipeChanged,
            Self::SequenceGap(_) => Code::SequenceGap,
            Self::PlanMismatch(_) => Code::PlanMismatch,
            Self::PermitExceeded(_) => Code::PermitExceeded,
            Self::LedgerUnavailable(_) => Code::LedgerUnavailable,
            Self::InProgress
            | Self::Unsettled(_)
            | Self::AwaitingApproval
            | Self::ApprovalDoesNotCount
            | Self::Claimed(_)
            | Self::NotSent(_)
            | Self::NotSetUp(_)
            | Self::Unavailable(_) => return None,
        })
    }
}
