//! Every bound of this crate, named, with its reason. All input is hostile.

/// Longest contract text: a reviewer reads it whole, and parsing must stay far below a second.
pub const CONTRACT_BYTES_MAX: usize = 256 * 1024;
/// Most operations, tools or endpoints in one contract; more than a person can review.
pub const ENTRIES_MAX: usize = 256;
/// Most fields of one operation; real provider calls have under fifty.
pub const FIELDS_MAX: usize = 128;
/// Most errors reported for one contract; past that the text is not a contract.
pub const ERRORS_MAX: usize = 200;
/// Longest name of a component, tool, operation, endpoint, action or field.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest place name (a header, a form member, a query name).
pub const PLACE_BYTES_MAX: usize = 200;
/// Deepest JSON pointer; deeper documents are not addressed by real providers.
pub const POINTER_SEGMENTS_MAX: usize = 16;
/// Longest JSON pointer text.
pub const POINTER_BYTES_MAX: usize = 512;
/// Deepest JSON document that is read; recursion over a document uses this much stack at most.
pub const JSON_DEPTH_MAX: usize = 64;
/// Most values in one JSON document that is read; bounds memory at about 100 bytes each.
pub const JSON_VALUES_MAX: usize = 1_000_000;
/// Longest text or JSON value of one field, unless the contract says less.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Longest bytes value of one field, unless the contract says less.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest value of a key part: it names an identifier, it does not carry text.
pub const KEY_PART_BYTES_MAX: usize = 1024;
/// Longest value in a path, query or header: servers refuse longer request lines.
pub const LINE_VALUE_BYTES_MAX: usize = 4096;
/// Longest rendered request body; a whole request is kept in the ledger.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest rendered URL; proxies refuse longer ones.
pub const URL_BYTES_MAX: usize = 8192;
/// Longest fact from the orchestrator.
pub const CONTEXT_BYTES_MAX: usize = 1024;
/// Most digits of a decimal: beyond any money or measure, short enough to compare at once.
pub const DECIMAL_DIGITS_MAX: usize = 40;
/// Most values a guest may give for one operation.
pub const GIVEN_MAX: usize = 256;
/// Most stored lookups that are considered for one resolution: a call with the most effects a
/// policy allows by default may fetch several objects for each.
pub const FETCHES_MAX: usize = 4096;
/// Most elements that `*` in a pointer is tried on.
pub const ELEMENTS_MAX: usize = 10_000;
/// Most candidates of one settle lookup; past that the answer decides nothing.
pub const CANDIDATES_MAX: usize = 10_000;
/// Longest receipt; a provider's identifier is far shorter.
pub const RECEIPT_BYTES_MAX: usize = 512;
/// Longest text from outside shown to an agent.
pub const SAFE_TEXT_BYTES_MAX: usize = 200;
/// Most key parts in a label: a label is read at a glance.
pub const LABEL_PARTS_MAX: usize = 8;
/// Longest sequence number, as a number: exact in every JSON reader.
pub const SEQUENCE_MAX: u64 = (1 << 53) - 1;
/// Longest duration in a contract: ten years; longer is a slip of the pen.
pub const DURATION_SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;
/// Longest SQL statement or document query: a reviewer reads it whole.
pub const STATEMENT_BYTES_MAX: usize = 16 * 1024;
/// Most places for values in one statement or query.
pub const BINDS_MAX: usize = FIELDS_MAX;
/// Deepest document query, constants included; deeper ones are not read by a person.
pub const QUERY_DEPTH_MAX: usize = 16;
/// Most documents or rows that a contract may ask for; what is more is no lookup.
pub const QUERY_LIMIT_MAX: i64 = 10_000;
