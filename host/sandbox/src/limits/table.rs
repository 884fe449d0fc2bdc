//! The table of all limits: what `oncegate policy limits` prints and LIMITS.md shows.

use std::time::Duration;

use super::{
    CALLS_OF_ONE_COMPONENT_MAX, CALLS_OF_ONE_COMPONENT_OPEN_MAX, CALLS_OF_ONE_TENANT_MAX, CALLS_OF_ONE_TENANT_OPEN_MAX,
    CALLS_OF_ONE_TENANT_WAITING_MAX, CALLS_WAITING_MAX, COMPONENT_BYTES_MAX, CORE_INSTANCES_PER_COMPONENT, FIELDS_MAX,
    HEADER_BYTES_MAX, HEADERS_MAX, Limits, MEMORIES_PER_COMPONENT, STACK_BYTES, TABLE_ELEMENTS_MAX,
    TABLES_PER_COMPONENT,
};
use crate::convert;
use crate::describe::{SECTION_BYTES_MAX, TYPE_DEPTH_MAX, TYPE_NODES_MAX};
use crate::engine::{CALLS_AT_ONCE_MAX, CALLS_OPEN_MAX};

/// One limit.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Its name in errors, in the outcome's `limit`, and in the policy where it can be set there.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Where its value comes from.
    pub value: Value,
    /// What happens beyond it.
    pub over: Over,
    /// Why there is one, and why this much.
    pub reason: &'static str,
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Time,
    /// Things.
    Count,
}

/// Where a limit's value comes from.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// The policy may set it.
    Policy(fn(&Limits) -> u64),
    /// It is part of the engine's profile or of a format.
    Fixed(u64),
}

/// What happens beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The component does not load, and the error names the limit.
    DoesNotLoad,
    /// The call is `refused` with `tool_limit` and the limit's name, where nothing is done or open.
    ToolLimit,
    /// The call is `refused` with `invalid_arguments`: nothing ran.
    InvalidArguments,
    /// The call is answered `pending`; the guest runs on.
    Pending,
    /// The rest is left out, and what was left out is said.
    Cut,
    /// The exchange with the provider ends; its effect is settled from what is known.
    EndsExchange,
    /// The row is frozen until a person looks.
    Frozen,
    /// The question is closed; the next call asks again.
    Closed,
}

impl Over {
    /// In a few words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DoesNotLoad => "does not load",
            Self::ToolLimit => "tool_limit",
            Self::InvalidArguments => "invalid_arguments",
            Self::Pending => "pending",
            Self::Cut => "cut",
            Self::EndsExchange => "ends the exchange",
            Self::Frozen => "frozen",
            Self::Closed => "asked again",
        }
    }
}

impl Limit {
    /// Whether a policy may set it.
    #[must_use]
    pub const fn overridable(&self) -> bool {
        matches!(self.value, Value::Policy(_))
    }

    /// Its value under these limits: bytes, milliseconds or a count.
    #[must_use]
    pub fn under(&self, limits: &Limits) -> u64 {
        match self.value {
            Value::Policy(read) => read(limits),
            Value::Fixed(value) => value,
        }
    }

    /// Its value where a policy says nothing.
    #[must_use]
    pub fn default(&self) -> u64 {
        self.under(&Limits::default())
    }
}

/// A value as a policy writes it: `64 MiB`, `30 s`, `1000`.
#[must_use]
pub fn words(value: u64, unit: Unit) -> String {
    let scaled = |steps: &[(u64, &str)]| {
        let fits = steps.iter().find(|(size, _)| value >= *size && value.is_multiple_of(*size));
        fits.map_or_else(|| value.to_string(), |(size, name)| format!("{} {name}", value / size))
    };
    match unit {
        Unit::Count => value.to_string(),
        Unit::Bytes => scaled(&[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]),
        Unit::Time => scaled(&[(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")]),
    }
}

const fn fixed(name: &'static str, unit: Unit, value: usize, over: Over, reason: &'static str) -> Limit {
    Limit { name, unit, value: Value::Fixed(value as u64), over, reason }
}

const fn set(name: &'static str, unit: Unit, read: fn(&Limits) -> u64, over: Over, reason: &'static str) -> Limit {
    Limit { name, unit, value: Value::Policy(read), over, reason }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

use Over::{Closed, Cut, DoesNotLoad, EndsExchange, Frozen, InvalidArguments, Pending, ToolLimit};
use Unit::{Bytes, Count, Time};

/// Every limit that a component, a call or a provider can meet.
pub const LIMITS: &[Limit] = &[
    // What a component may be.
    fixed("component", Bytes, COMPONENT_BYTES_MAX, DoesNotLoad, "the largest language runtimes give 20 MB components"),
    fixed(
        "section",
        Bytes,
        SECTION_BYTES_MAX,
        DoesNotLoad,
        "contract and WIT text: a person wrote it, another reads it",
    ),
    fixed("type-depth", Count, TYPE_DEPTH_MAX, DoesNotLoad, "deeper JSON is beyond what a model writes correctly"),
    fixed("type-parts", Count, TYPE_NODES_MAX, DoesNotLoad, "shared records can spell out an exponential tree"),
    fixed(
        "instances",
        Count,
        CORE_INSTANCES_PER_COMPONENT as usize,
        DoesNotLoad,
        "componentize-py's guests have 38; more would take the places of other calls",
    ),
    fixed("memories", Count, MEMORIES_PER_COMPONENT as usize, DoesNotLoad, "QuickJS guests have 3"),
    fixed("tables", Count, TABLES_PER_COMPONENT as usize, DoesNotLoad, "language runtimes have 2"),
    // What a call may use of the host.
    set(
        "memory",
        Bytes,
        |limits| limits.memory_bytes_max as u64,
        ToolLimit,
        "in all memories together; `memory.fill` cannot be interrupted and takes about 1 ms per MiB",
    ),
    fixed("table-elements", Count, TABLE_ELEMENTS_MAX, ToolLimit, "in one table; StarlingMonkey has 7,691"),
    fixed("stack", Bytes, STACK_BYTES, ToolLimit, "wasmtime's default; recursion of real tools needs far less"),
    set(
        "wall-time",
        Time,
        |limits| millis(limits.wall_time_max),
        ToolLimit,
        "longer than a slow provider's whole answer",
    ),
    set("answer-within", Time, |limits| millis(limits.answer_within), Pending, "agent frameworks give up after 5 s"),
    set(
        "host-calls",
        Count,
        |limits| limits.host_calls_max.into(),
        ToolLimit,
        "calls of lookup, effect and context together; a real tool makes a few",
    ),
    set(
        "host-call-bytes",
        Bytes,
        |limits| limits.host_call_bytes_max as u64,
        ToolLimit,
        "what one call of the host copies out of a guest is host memory",
    ),
    set(
        "handles",
        Count,
        |limits| limits.handles_max.into(),
        ToolLimit,
        "each stream, pollable or error costs host memory",
    ),
    set(
        "random",
        Bytes,
        |limits| limits.random_bytes_max as u64,
        ToolLimit,
        "at once; seeds and identifiers need dozens",
    ),
    // What a call may ask of providers.
    set("effects", Count, |limits| limits.effects_max.into(), ToolLimit, "per call, whatever a contract asks for"),
    set("lookups", Count, |limits| limits.lookups_max.into(), ToolLimit, "per call; several for each effect"),
    set(
        "lookup-bytes",
        Bytes,
        |limits| limits.lookup_bytes_max as u64,
        ToolLimit,
        "all lookups' answers of a call: they are kept until it ends, as what its fields are resolved from",
    ),
    fixed("fields", Count, FIELDS_MAX, ToolLimit, "values given for one operation; a contract declares far fewer"),
    set(
        "field",
        Bytes,
        |limits| limits.field_bytes_max as u64,
        ToolLimit,
        "one value: a text that a person wrote, many times over",
    ),
    set(
        "request",
        Bytes,
        |limits| limits.request_bytes_max as u64,
        ToolLimit,
        "URL, headers and body; the ledger keeps all of it",
    ),
    set(
        "response",
        Bytes,
        |limits| limits.response_bytes_max as u64,
        Cut,
        "what the guest sees of a body; the ledger keeps all of it",
    ),
    set(
        "evidence-max",
        Bytes,
        |limits| limits.evidence_bytes_max as u64,
        Frozen,
        "a large answer may hold the only copy of a token",
    ),
    set("connect-within", Time, |limits| millis(limits.connect_within), EndsExchange, "until a connection is set up"),
    set(
        "request-deadline",
        Time,
        |limits| millis(limits.request_deadline),
        EndsExchange,
        "providers answer within 30 s or do not",
    ),
    set("idle", Time, |limits| millis(limits.idle_max), EndsExchange, "between two reads of an answer"),
    set(
        "send-within",
        Time,
        |limits| millis(limits.send_within),
        EndsExchange,
        "a process that was stopped wakes to another world",
    ),
    set(
        "compile-time",
        Time,
        |limits| millis(limits.compile_time_max),
        DoesNotLoad,
        "CPU time in a process of its own; the largest language runtime takes some 15 s",
    ),
    fixed("headers", Count, HEADERS_MAX, Cut, "declared headers of one answer that the guest is given"),
    fixed(
        "header",
        Bytes,
        HEADER_BYTES_MAX,
        Cut,
        "one header's value: a longer one is left out, since half a value says something else",
    ),
    // What is passed on.
    set(
        "result",
        Bytes,
        |limits| limits.result_bytes_max as u64,
        ToolLimit,
        "as JSON; what a model can read, many times over",
    ),
    set("log", Bytes, |limits| limits.log_bytes_max as u64, Cut, "standard output and error of one call, for people"),
    fixed(
        "argument-text",
        Bytes,
        convert::TEXT_BYTES_MAX,
        InvalidArguments,
        "one text or byte string: more than a model writes",
    ),
    fixed("argument-items", Count, convert::LIST_ITEMS_MAX, InvalidArguments, "of one list"),
    fixed(
        "argument-values",
        Count,
        convert::VALUES_MAX,
        InvalidArguments,
        "in all; each costs tens of bytes of host memory",
    ),
    // What calls may take from each other.
    fixed(
        "calls-at-once",
        Count,
        CALLS_AT_ONCE_MAX as usize,
        ToolLimit,
        "guests that begin to compute; each gives its turn back when it first waits for a provider",
    ),
    fixed("calls-of-one-component", Count, CALLS_OF_ONE_COMPONENT_MAX, ToolLimit, "no tool takes all turns"),
    fixed("calls-of-one-tenant", Count, CALLS_OF_ONE_TENANT_MAX, ToolLimit, "no tenant takes all turns"),
    fixed(
        "calls-open",
        Count,
        CALLS_OPEN_MAX as usize,
        ToolLimit,
        "calls that were begun and have not ended, most of which wait for a provider; each has its place in the pool",
    ),
    fixed("calls-of-one-component-open", Count, CALLS_OF_ONE_COMPONENT_OPEN_MAX, ToolLimit, "no tool takes all places"),
    fixed("calls-of-one-tenant-open", Count, CALLS_OF_ONE_TENANT_OPEN_MAX, ToolLimit, "no tenant takes all places"),
    fixed("calls-waiting", Count, CALLS_WAITING_MAX, ToolLimit, "each that waits for a place holds its arguments"),
    fixed(
        "calls-of-one-tenant-waiting",
        Count,
        CALLS_OF_ONE_TENANT_WAITING_MAX,
        ToolLimit,
        "no tenant takes all places to wait in",
    ),
    set(
        "attach",
        Time,
        |limits| millis(limits.attach_max),
        Pending,
        "a second caller with one key waits for the first",
    ),
    set(
        "elicitation-within",
        Time,
        |limits| millis(limits.elicitation_within),
        Closed,
        "somebody reads a whole request",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_a_reason() {
        let names: BTreeSet<_> = LIMITS.iter().map(|limit| limit.name).collect();
        assert_eq!(names.len(), LIMITS.len());
        for limit in LIMITS {
            assert!(!limit.reason.is_empty() && limit.default() > 0, "{}", limit.name);
        }
    }

    #[test]
    fn a_policy_sets_exactly_those_that_say_so() {
        for limit in LIMITS {
            let value = match limit.unit {
                Unit::Time => "\"7s\"",
                Unit::Bytes | Unit::Count => "7",
            };
            let text = format!("[limits]\n{} = {value}\n", limit.name);
            let read = crate::policy::Policy::parse("policy.toml", &text);
            match read {
                Ok(policy) => {
                    assert!(limit.overridable(), "{}", limit.name);
                    let set = if limit.unit == Unit::Time { 7_000 } else { 7 };
                    assert_eq!(limit.under(&policy.limits), set, "{}", limit.name);
                    let others = LIMITS.iter().filter(|other| other.name != limit.name);
                    others.for_each(|other| assert_eq!(other.under(&policy.limits), other.default(), "{}", other.name));
                }
                Err(error) => assert!(!limit.overridable(), "{}: {error}", limit.name),
            }
        }
    }

    #[test]
    fn values_are_written_with_the_largest_unit_that_fits() {
        assert_eq!(words(64 << 20, Unit::Bytes), "64 MiB");
        assert_eq!(words(4_097, Unit::Bytes), "4097 B");
        assert_eq!(words(60_000, Unit::Time), "1 m");
        assert_eq!(words(1_500, Unit::Time), "1500 ms");
        assert_eq!(words(1_000, Unit::Count), "1000");
    }
}
