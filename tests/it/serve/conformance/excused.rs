//! What the suite asks of a server that this one does not offer, and why that says nothing of it.

use oncegate_tests::mcp::http::{NEWER, OLDER};

/// Checks that are not met.
pub(super) struct Excused {
    /// In the requirements of these revisions.
    pub(super) revisions: &'static [&'static str],
    /// The scenarios; in each of them something fails.
    pub(super) scenarios: &'static [&'static str],
    /// How the names of the checks start.
    pub(super) checks: &'static str,
    /// What is not offered.
    pub(super) why: &'static str,
}

const BOTH: &[&str] = &[OLDER, NEWER];
const OLD: &[&str] = &[OLDER];
const NEW: &[&str] = &[NEWER];

const fn all_of(revisions: &'static [&'static str], scenarios: &'static [&'static str], why: &'static str) -> Excused {
    Excused { revisions, scenarios, checks: "", why }
}

const fn some_of(scenario: &'static [&'static str], checks: &'static str, why: &'static str) -> Excused {
    Excused { revisions: NEW, scenarios: scenario, checks, why }
}

/// All of it. What passes one day is taken out, so that it stays.
pub(super) const EXCUSED: &[Excused] = &[
    all_of(BOTH, &["completion-complete"], "there is nothing to complete: no prompts, no templates"),
    all_of(
        BOTH,
        &[
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ],
        "tools are hosted, and no prompts",
    ),
    all_of(
        BOTH,
        &["resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read"],
        "tools are hosted, and no resources",
    ),
    all_of(OLD, &["resources-subscribe", "resources-unsubscribe"], "tools are hosted, and no resources"),
    all_of(NEW, &["sep-2164-resource-not-found"], "tools are hosted, and no resources"),
    all_of(
        BOTH,
        &["tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content"],
        "an answer is one object with what is known of the effects; bytes that a tool returns stand in it",
    ),
    all_of(BOTH, &["json-schema-2020-12"], "schemas are made of WIT types, which know no conditions and no anchors"),
    all_of(OLD, &["tools-call-sampling"], "a guest reaches nobody but the providers, and not the client's model"),
    all_of(
        OLD,
        &["tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums"],
        "a guest does not speak to the person at the client; the host asks for approvals, in its own words",
    ),
    all_of(OLD, &["server-sse-multiple-streams", "server-sse-polling"], "there are no sessions"),
    some_of(&["caching"], "sep-2549-prompts-", "tools are hosted, and no prompts"),
    some_of(&["caching"], "sep-2549-resources-", "tools are hosted, and no resources"),
    all_of(NEW, &["http-custom-header-server-validation"], "no argument of a tool travels as a header"),
    all_of(
        NEW,
        &[
            "input-required-result-basic-elicitation",
            "input-required-result-ignore-extra-params",
            "input-required-result-missing-input-response",
            "input-required-result-multi-round",
            "input-required-result-request-state",
            "input-required-result-result-type",
            "input-required-result-tampered-state",
        ],
        "a guest does not speak to the person at the client; the host asks for approvals, in its own words",
    ),
    all_of(
        NEW,
        &[
            "input-required-result-basic-list-roots",
            "input-required-result-basic-sampling",
            "input-required-result-capability-check",
            "input-required-result-multiple-input-requests",
        ],
        "a guest reaches nobody but the providers: neither the client's model nor its roots",
    ),
    all_of(NEW, &["input-required-result-non-tool-request"], "tools are hosted, and no prompts"),
    some_of(
        &["server-stateless"],
        "sep-2575-server-rejects-undeclared-capability",
        "no tool needs something of its client",
    ),
    some_of(&["server-stateless"], "sep-2575-missing-capability-http-400", "no tool needs something of its client"),
    some_of(
        &["server-stateless"],
        "sep-2575-server-sends-tools-list-changed-on-subscription",
        "no tool changes the tools; that a change of a folder is told is tested over HTTP",
    ),
    some_of(
        &["tasks-dispatch-and-envelope"],
        "tasks-result-type-complete-on-non-task-responses",
        "a guest does not speak to the person at the client",
    ),
    all_of(NEW, &["tasks-mrtr-composition", "tasks-mrtr-input"], "a guest does not speak to the person at the client"),
    some_of(
        &["tasks-lifecycle"],
        "sep-2663-tasks-get-status-failed",
        "a tool that fails is answered, however it fails: the protocol's own errors are not a guest's to make",
    ),
    some_of(
        &["tasks-request-headers"],
        "tasks-headers-tolerate-mcp-method-on-tools-call",
        "it looks for a bare text, and an answer is one object with what is known of the effects",
    ),
    some_of(
        &["tasks-required-task-error"],
        "sep-2663-server-returns-missing-capability-when-required",
        "no tool needs something of its client: without tasks a long call is answered `pending`",
    ),
];
