//! Every limit of the sandbox, with its unit, its default and the reason for it.
//!
//! [`LIMITS`] is the whole table. A policy may override those that say so; the name in the policy, in errors
//! and there is the same. Defaults: [`Limits::default`].

mod table;

use std::time::Duration;

use crate::engine::{CALLS_AT_ONCE_MAX, CALLS_OPEN_MAX};

pub use table::{LIMITS, Limit, Over, Unit, Value, words};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Bytes of a component file that are read; the largest language runtimes give 20 MB components.
pub const COMPONENT_BYTES_MAX: usize = 64 * MIB;
/// Bytes of stack a guest may use; wasmtime's default.
pub const STACK_BYTES: usize = 512 * KIB;
/// Core instances in one component instance: componentize-py's guests have 38.
pub const CORE_INSTANCES_PER_COMPONENT: u32 = 40;
/// Component instances inside one component: composed tools have a handful.
pub const NESTED_INSTANCES_PER_COMPONENT: u32 = 64;
/// Memories in one component instance: `QuickJS` guests have 3.
pub const MEMORIES_PER_COMPONENT: u32 = 4;
/// Tables in one component instance.
pub const TABLES_PER_COMPONENT: u32 = 8;
/// Elements in one table: `StarlingMonkey` has 7,691.
pub const TABLE_ELEMENTS_MAX: usize = 20_000;
/// Bytes of the answer to a lookup that the host makes for itself, and the default for all lookups of a call together.
pub const LOOKUP_BYTES_MAX: usize = 24 * MIB;
/// Values that a guest gives for one operation; a contract declares far fewer.
pub const FIELDS_MAX: usize = 256;
/// Calls of one component that begin to compute at once, whoever called: a quarter of the turns is left for others.
pub const CALLS_OF_ONE_COMPONENT_MAX: usize = 48;
/// Calls of one tenant that begin to compute at once: more than of one component, so that a second tool of his has turns
/// left, and fewer than there are, so that other tenants have.
pub const CALLS_OF_ONE_TENANT_MAX: usize = 56;
/// Guests that compute at once after they have waited for an answer, beside those that begin: half as many, since an
/// answer is soon read.
pub const CALLS_GOING_ON_MAX: usize = CALLS_AT_ONCE_MAX as usize / 2;
/// Those of one component: a quarter is left for others.
pub const CALLS_OF_ONE_COMPONENT_GOING_ON_MAX: usize = CALLS_OF_ONE_COMPONENT_MAX / 2;
/// Those of one tenant.
pub const CALLS_OF_ONE_TENANT_GOING_ON_MAX: usize = CALLS_OF_ONE_TENANT_MAX / 2;
/// Calls of one component that are open at once, most of which wait for a provider: a quarter is left for others.
pub const CALLS_OF_ONE_COMPONENT_OPEN_MAX: usize = CALLS_OPEN_MAX as usize / 4 * 3;
/// Those of one tenant.
pub const CALLS_OF_ONE_TENANT_OPEN_MAX: usize = CALLS_OPEN_MAX as usize / 8 * 7;
/// Bytes of arguments that count as one open call: a larger call counts as several, so that all that are open hold some
/// 16 MiB of arguments, and copies of them.
pub const BYTES_OF_AN_OPEN_CALL: usize = 16 << 10;
/// Calls at once that wait for a turn. Each holds its arguments, and a client that has gone may have left many.
pub const CALLS_WAITING_MAX: usize = 512;
/// Those of one tenant, so that others find a place.
pub const CALLS_OF_ONE_TENANT_WAITING_MAX: usize = 448;
/// Declared headers of one answer that a guest is given, and bytes of one; a longer one is left out, since half a
/// value says something else.
pub const HEADERS_MAX: usize = 64;
/// The same, of one value: what servers accept of a request's, twice.
pub const HEADER_BYTES_MAX: usize = 16 * KIB;
/// How often a running guest is looked at.
pub const EPOCH_TICK: Duration = Duration::from_millis(1);

/// Names of the limits that end a guest; a runner process can name no other.
pub(crate) const ENDING: [&str; 13] = [
    "memory",
    "memories",
    "table-elements",
    "tables",
    "instances",
    "handles",
    "random",
    "host-call-bytes",
    "result",
    "wall-time",
    "stack",
    "host-calls",
    "calls-at-once",
];

/// What one call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// `memory`: bytes of linear memory in all memories of the instance together.
    pub memory_bytes_max: usize,
    /// `wall-time`: from the start of the guest to its end, host calls included.
    pub wall_time_max: Duration,
    /// `answer-within`: when the caller is answered `pending`, the guest running on.
    pub answer_within: Duration,
    /// `host-calls`: calls of `lookup`, `effect` and `context` together.
    pub host_calls_max: u32,
    /// `effects`: effects per call, whatever a contract asks for.
    pub effects_max: u32,
    /// `lookups`: lookups per call.
    pub lookups_max: u32,
    /// `field`: bytes of one value, or of its name, that a guest gives for a request.
    pub field_bytes_max: usize,
    /// `request`: bytes of one rendered request: URL, declared headers and body.
    pub request_bytes_max: usize,
    /// `lookup-bytes`: bytes of all lookups' answers of one call together.
    pub lookup_bytes_max: usize,
    /// `host-call-bytes`: bytes that one call of the host may copy out of a guest.
    pub host_call_bytes_max: usize,
    /// `handles`: resources (streams, pollables, errors) that a guest holds at once.
    pub handles_max: u32,
    /// `random`: random bytes that a guest may ask for at once.
    pub random_bytes_max: usize,
    /// `response`: bytes of an answer's body that the guest sees.
    pub response_bytes_max: usize,
    /// `evidence-max`: bytes of an answer that are kept.
    pub evidence_bytes_max: usize,
    /// `result`: bytes of the tool's result as JSON.
    pub result_bytes_max: usize,
    /// `log`: bytes of the guest's standard output and error that are kept.
    pub log_bytes_max: usize,
    /// `connect-within`: until a connection to a provider is set up.
    pub connect_within: Duration,
    /// `request-deadline`: from the first byte sent to the last one received.
    pub request_deadline: Duration,
    /// `idle`: between two reads of an answer.
    pub idle_max: Duration,
    /// `send-within`: from the dispatch commit to the first byte.
    pub send_within: Duration,
    /// `attach`: how long a second caller waits for the first one's result.
    pub attach_max: Duration,
    /// `compile-time`: CPU seconds for compiling a component in a process of its own.
    pub compile_time_max: Duration,
    /// `elicitation-within`: how long a question to a client's person stays open.
    pub elicitation_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // 64 MiB: `memory.fill` cannot be interrupted and takes about 1 ms per MiB.
            memory_bytes_max: 64 * MIB,
            // Longer than a slow provider's whole answer.
            wall_time_max: Duration::from_secs(60),
            // Agent frameworks give up after 5 s.
            answer_within: Duration::from_secs(4),
            host_calls_max: 10_000,
            effects_max: 1_000,
            lookups_max: 1_000,
            // A text that a person wrote, many times over.
            field_bytes_max: MIB,
            // As much as the arguments of a call may have; the ledger keeps the whole request.
            request_bytes_max: 8 * MIB,
            // They are kept until the call ends, as what its fields are resolved from.
            lookup_bytes_max: LOOKUP_BYTES_MAX,
            // wasmtime's default of 128 MiB lets a guest fill the host's memory.
            host_call_bytes_max: 4 * MIB,
            // Each costs host memory; a language runtime holds ten.
            handles_max: 1_000,
            // Seeds and identifiers need a few dozen.
            random_bytes_max: 4_096,
            // What a model can read, many times over.
            response_bytes_max: MIB,
            // The only copy of a token may be in a large answer; 64 MiB bounds the memory it takes.
            evidence_bytes_max: 64 * MIB,
            result_bytes_max: MIB,
            log_bytes_max: 64 * KIB,
            connect_within: Duration::from_secs(5),
            // Providers answer within 30 s or do not.
            request_deadline: Duration::from_secs(30),
            idle_max: Duration::from_secs(20),
            // A process that was stopped in between wakes to a world that has moved on.
            send_within: Duration::from_secs(10),
            attach_max: Duration::from_secs(3),
            // The largest language runtime takes some 15 s.
            compile_time_max: Duration::from_secs(300),
            // Somebody reads a whole request; whoever is not there now is asked by the next call.
            elicitation_within: Duration::from_secs(300),
        }
    }
}
