//! The spans of calls, from where they are made to where they wait to be sent.
//!
//! Only what is listed here leaves: a field of another name, and a text that is long, is left out wherever it was
//! set. Nothing waits: a span for which there is no room is dropped, and counted.

mod fields;
mod parent;
mod sampler;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use oncegate_sandbox::meter::spans::TARGET;
use tokio::sync::mpsc;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::board::Board;
use fields::Fields;
pub(super) use fields::{Attribute, Word};
use parent::Parent;
pub(super) use sampler::Sampler;

/// A call's name: it alone begins a trace, and ends when its caller is answered.
const CALL: &str = "call";
/// The field whose setting ends a call.
const ANSWERED: &str = "oncegate.status";

/// On whose side of a request a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A span that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) remote_parent: bool,
    pub(super) name: String,
    pub(super) side: Side,
    /// Nanoseconds since the Unix epoch.
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) attributes: Vec<Attribute>,
}

impl Finished {
    /// Whether something went wrong in it.
    pub(super) fn failed(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.name == "error.type")
    }
}

/// A span that goes on.
struct Open {
    trace: [u8; 16],
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    remote_parent: bool,
    is_sampled: bool,
    began: u64,
    is_over: bool,
    fields: Fields,
}

/// Listens to spans.
#[derive(Clone)]
pub(crate) struct Spans {
    finished: mpsc::Sender<Finished>,
    sampler: Sampler,
    board: Arc<Board>,
}

/// Lets nothing but spans of calls through: no event, and nothing that others make.
pub(crate) fn spans_alone() -> FilterFn<impl Fn(&Metadata<'_>) -> bool> {
    filter_fn(|metadata| metadata.is_span() && metadata.target() == TARGET).with_max_level_hint(LevelFilter::INFO)
}

impl Spans {
    pub(super) fn new(finished: mpsc::Sender<Finished>, sampler: Sampler, board: Arc<Board>) -> Self {
        Self { finished, sampler, board }
    }

    fn begin(&self, name: &str, above: Option<&Open>, fields: Fields) -> Option<Open> {
        let id = some(rand::random());
        if let Some(above) = above {
            let &Open { trace, id: parent, is_sampled, .. } = above;
            let parent = Some(parent);
            return Some(Open {
                trace,
                id,
                parent,
                remote_parent: false,
                is_sampled,
                began: now(),
                is_over: false,
                fields,
            });
        }
        if name != CALL {
            // What belongs to no call is told by figures.
            return None;
        }
        let said = fields.parent().and_then(Parent::parse);
        let trace = said.map_or_else(|| some(rand::random::<[u8; 16]>()), |parent| parent.trace);
        let is_sampled = self.sampler.takes(&trace, said.map(|parent| parent.is_sampled));
        let parent = said.map(|parent| parent.id);
        Some(Open {
            trace,
            id,
            parent,
            remote_parent: said.is_some(),
            is_sampled,
            began: now(),
            is_over: false,
            fields,
        })
    }

    fn end(&self, name: &'static str, open: &mut Open) {
        if std::mem::replace(&mut open.is_over, true) || !open.is_sampled {
            return;
        }
        let fields = std::mem::take(&mut open.fields);
        let (name, side) = shown(name, &fields);
        let Open { trace, id, parent, remote_parent, began, .. } = *open;
        let attributes = fields.into_attributes();
        let ended = now().max(began);
        let finished = Finished { trace, id, parent, remote_parent, name, side, began, ended, attributes };
        if self.finished.try_send(finished).is_err() {
            self.board.exports.spans_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let fields = Fields::of(attributes);
        let above = span.parent();
        let open = match &above {
            Some(above) => self.begin(span.name(), above.extensions().get::<Open>(), fields),
            None => self.begin(span.name(), None, fields),
        };
        if let Some(open) = open {
            span.extensions_mut().insert(open);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(open) = extensions.get_mut::<Open>().filter(|open| !open.is_over) else { return };
        values.record(&mut open.fields);
        if span.name() == CALL && open.fields.has(ANSWERED) {
            self.end(CALL, open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(open) = extensions.get_mut::<Open>() {
            self.end(span.name(), open);
        }
    }
}

/// What a span is called, and on whose side it is.
fn shown(name: &'static str, fields: &Fields) -> (String, Side) {
    let named = |prefix: &str, field: &str| format!("{prefix} {}", fields.text(field).unwrap_or("_other"));
    match name {
        CALL => (named("tools/call", "gen_ai.tool.name"), Side::Server),
        "effect" => (named("effect", "oncegate.operation"), Side::Internal),
        "lookup" => (named("lookup", "oncegate.operation"), Side::Internal),
        "commit" => (named("commit", "oncegate.ledger.event"), Side::Internal),
        "send" => (fields.text("http.request.method").unwrap_or("query").to_owned(), Side::Client),
        other => (other.to_owned(), Side::Internal),
    }
}

/// Zeros are no name.
fn some<const N: usize>(mut id: [u8; N]) -> [u8; N] {
    id[N - 1] |= u8::from(id == [0; N]);
    id
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn heard(sampler: Sampler, said: Option<&str>, room: usize) -> (Vec<Finished>, u64) {
        let board = Arc::<Board>::default();
        let (sender, mut finished) = mpsc::channel(room);
        let spans = Spans::new(sender, sampler, Arc::clone(&board));
        let subscriber = tracing_subscriber::registry().with(spans.with_filter(spans_alone()));
        tracing::subscriber::with_default(subscriber, || {
            let call = tracing::info_span!(target: "telemetry", "call", "gen_ai.tool.name" = "pay", traceparent = said,
                secret = "s3cret", "oncegate.status" = tracing::field::Empty);
            let _of_others = tracing::info_span!(parent: &call, "others").entered();
            let effect =
                tracing::info_span!(target: "telemetry", parent: &call, "effect", "oncegate.operation" = "create");
            let commit = effect.in_scope(|| tracing::info_span!(target: "telemetry", "commit"));
            tracing::error!(target: "telemetry", "an event");
            call.record("oncegate.status", "done");
            call.record("oncegate.status", "pending");
            drop((commit, effect));
            tracing::info_span!(target: "telemetry", parent: None, "commit");
        });
        let mut all = Vec::new();
        while let Ok(one) = finished.try_recv() {
            all.push(one);
        }
        (all, board.exports.spans_dropped.load(Ordering::Relaxed))
    }

    const SAID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_call_its_effect_and_what_that_did_are_one_tree() {
        let (all, dropped) = heard(Sampler::default(), Some(SAID), 9);
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((names.as_slice(), dropped), (&["tools/call pay", "commit _other", "effect create"][..], 0));
        let [call, commit, effect] = &all[..] else { panic!("{all:?}") };
        assert!(all.iter().all(|one| one.trace == call.trace && one.trace[0] == 0x0a));
        assert_eq!((call.parent.unwrap()[0], call.remote_parent), (0xb7, true));
        assert_eq!((effect.parent, commit.parent), (Some(call.id), Some(effect.id)));
        let told: Vec<_> = call.attributes.iter().map(|one| one.name).collect();
        assert_eq!(told, ["gen_ai.tool.name", "oncegate.status"], "and neither the secret nor what the caller said");
        assert_eq!(call.attributes[1].value, Word::Text("done".to_owned()));
    }

    #[test]
    fn what_a_caller_said_wrongly_begins_a_trace_of_its_own() {
        let (all, _) = heard(Sampler::default(), Some("00-zz-b7ad6b7169203331-01"), 9);
        assert_eq!((all.len(), all[0].parent, all[0].remote_parent), (3, None, false));
    }

    #[test]
    fn a_trace_that_its_caller_does_not_keep_is_not_kept_here() {
        assert!(heard(Sampler::default(), Some(&SAID.replace("-01", "-00")), 9).0.is_empty());
    }

    #[test]
    fn what_has_no_room_is_dropped_and_counted() {
        let (all, dropped) = heard(Sampler::default(), None, 1);
        assert_eq!((all.len(), dropped), (1, 2));
    }
}
