//! The words that figures are told apart by: closed lists, each in a fixed order.

use oncegate_ledger::LedgerError;

use super::CallEnd;
use crate::http::{End, Exchange};
use crate::outcome::{Code, Status};

/// Every code of a refusal.
pub(super) const CODES: [Code; 12] = [
    Code::IdempotencyKeyReused,
    Code::EffectNotPermitted,
    Code::ContextMissing,
    Code::Revoked,
    Code::PermitExceeded,
    Code::PlanMismatch,
    Code::SequenceGap,
    Code::RecipeChanged,
    Code::InvalidArguments,
    Code::LedgerUnavailable,
    Code::ToolFailed,
    Code::ToolLimit,
];

/// As callers are told it.
pub(super) fn code(code: Code) -> &'static str {
    match code {
        Code::IdempotencyKeyReused => "idempotency_key_reused",
        Code::EffectNotPermitted => "effect_not_permitted",
        Code::ContextMissing => "context_missing",
        Code::Revoked => "revoked",
        Code::PermitExceeded => "permit_exceeded",
        Code::PlanMismatch => "plan_mismatch",
        Code::SequenceGap => "sequence_gap",
        Code::RecipeChanged => "recipe_changed",
        Code::InvalidArguments => "invalid_arguments",
        Code::LedgerUnavailable => "ledger_unavailable",
        Code::ToolFailed => "tool_failed",
        Code::ToolLimit => "tool_limit",
    }
}

/// Every way a call can be answered.
pub(super) const CALL_ENDS: [CallEnd; 7] = [
    CallEnd::Outcome(Status::Done),
    CallEnd::Outcome(Status::AlreadyDone),
    CallEnd::Outcome(Status::Pending),
    CallEnd::Outcome(Status::Failed),
    CallEnd::Outcome(Status::Refused),
    CallEnd::Task,
    CallEnd::InputRequired,
];

pub(super) fn call_end(end: CallEnd) -> &'static str {
    match end {
        CallEnd::Outcome(Status::Done) => "done",
        CallEnd::Outcome(Status::AlreadyDone) => "already_done",
        CallEnd::Outcome(Status::Pending) => "pending",
        CallEnd::Outcome(Status::Failed) => "failed",
        CallEnd::Outcome(Status::Refused) => "refused",
        CallEnd::Task => "task",
        CallEnd::InputRequired => "input_required",
    }
}

/// What an append came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitEnd {
    Stored,
    Conflict,
    Condition,
    Full,
    Unavailable,
    Refused,
}

/// Every end of an append.
pub(super) const COMMIT_ENDS: [CommitEnd; 6] = [
    CommitEnd::Stored,
    CommitEnd::Conflict,
    CommitEnd::Condition,
    CommitEnd::Full,
    CommitEnd::Unavailable,
    CommitEnd::Refused,
];

pub(super) fn commit_end(end: CommitEnd) -> &'static str {
    match end {
        CommitEnd::Stored => "stored",
        CommitEnd::Conflict => "conflict",
        CommitEnd::Condition => "condition",
        CommitEnd::Full => "full",
        CommitEnd::Unavailable => "unavailable",
        CommitEnd::Refused => "refused",
    }
}

impl CommitEnd {
    pub(super) fn of<T>(result: &Result<T, LedgerError>) -> Self {
        match result {
            Ok(_) => Self::Stored,
            Err(LedgerError::Conflict { .. }) => Self::Conflict,
            Err(LedgerError::Condition { .. }) => Self::Condition,
            Err(LedgerError::Full { .. }) => Self::Full,
            Err(LedgerError::Unavailable { .. }) => Self::Unavailable,
            Err(_) => Self::Refused,
        }
    }
}

/// What a provider was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An effect.
    Effect,
    /// A lookup.
    Lookup,
}

impl Asked {
    pub(super) const ALL: [Self; 2] = [Self::Effect, Self::Lookup];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Effect => "effect",
            Self::Lookup => "lookup",
        }
    }
}

/// How a request to a provider ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderEnd {
    /// Not one byte was sent.
    NotSent,
    Status2xx,
    Status3xx,
    Status4xx,
    Status5xx,
    /// A status that is none of those.
    StatusOther,
    /// The answer was cut off.
    Truncated,
    TimedOut,
    /// The connection broke, or what came is not HTTP.
    Broken,
    TooLarge,
    /// A lookup that gave no usable answer.
    Unavailable,
}

impl ProviderEnd {
    pub(super) const ALL: [Self; 11] = [
        Self::NotSent,
        Self::Status2xx,
        Self::Status3xx,
        Self::Status4xx,
        Self::Status5xx,
        Self::StatusOther,
        Self::Truncated,
        Self::TimedOut,
        Self::Broken,
        Self::TooLarge,
        Self::Unavailable,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Status2xx => "2xx",
            Self::Status3xx => "3xx",
            Self::Status4xx => "4xx",
            Self::Status5xx => "5xx",
            Self::StatusOther => "other",
            Self::Truncated => "truncated",
            Self::TimedOut => "timed_out",
            Self::Broken => "broken",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
        }
    }

    /// By a status.
    pub(crate) fn of_status(status: u16) -> Self {
        match status / 100 {
            2 => Self::Status2xx,
            3 => Self::Status3xx,
            4 => Self::Status4xx,
            5 => Self::Status5xx,
            _ => Self::StatusOther,
        }
    }

    /// By how an exchange went.
    pub(crate) fn of(exchange: &Exchange) -> Self {
        match exchange.end {
            _ if exchange.sent_bytes == 0 && exchange.raw.is_empty() => Self::NotSent,
            End::Complete => exchange.status().map_or(Self::StatusOther, Self::of_status),
            End::Truncated => Self::Truncated,
            End::TimedOut => Self::TimedOut,
            End::Broken => Self::Broken,
            End::TooLarge => Self::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_as_callers_are_told_them() {
        for one in CODES {
            assert_eq!(serde_json::json!(one), code(one));
        }
        for end in CALL_ENDS {
            if let CallEnd::Outcome(status) = end {
                assert_eq!(serde_json::json!(status), call_end(end));
            }
        }
    }

    #[test]
    fn each_list_is_in_the_order_of_its_numbers() {
        assert!(ProviderEnd::ALL.iter().enumerate().all(|(at, end)| *end as usize == at));
        assert!(COMMIT_ENDS.iter().enumerate().all(|(at, end)| *end as usize == at));
        assert!(Asked::ALL.iter().enumerate().all(|(at, asked)| *asked as usize == at));
    }

    #[test]
    fn an_exchange_is_named_by_its_first_line_and_its_end() {
        let exchange = |raw: &[u8], end| Exchange { sent_bytes: 9, raw: raw.to_vec(), witnessed: 0, end, error: None };
        let complete = |raw: &[u8]| ProviderEnd::of(&exchange(raw, End::Complete)).word();
        assert_eq!(complete(b"HTTP/1.1 402 Payment Required\r\n"), "4xx");
        assert_eq!(complete(b"HTTP/1.0 200\r\n"), "2xx");
        for wrong in [&b""[..], b"HTTP/2 200", b"HTTP/1.1 2", b"HTTP/1.1 abc", b"HTTP/1.1 042 x"] {
            assert_eq!(complete(wrong), "other");
        }
        assert_eq!(ProviderEnd::of(&exchange(b"", End::TimedOut)), ProviderEnd::TimedOut);
        let nothing = Exchange { sent_bytes: 0, ..exchange(b"", End::Broken) };
        assert_eq!(ProviderEnd::of(&nothing), ProviderEnd::NotSent);
    }
}
