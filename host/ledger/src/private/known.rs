//! What the records of a stream say of the key that it is under.

use crate::event::ObjectKind;
use crate::{Event, KeyName, Record, StreamId, StreamKind, Ties};

/// What a key belongs to.
pub(super) type Object = (ObjectKind, [u8; 32]);

/// A stream, as far as encrypting needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) version: u64,
    /// What its events belong to.
    pub(super) object: Object,
    /// Something in it is encrypted, so that all that comes is.
    pub(super) is_private: bool,
    /// How often its own text was erased.
    pub(super) erasures: u32,
}

/// Streams with private parts.
pub(super) fn is_covered(kind: StreamKind) -> bool {
    matches!(kind, StreamKind::Effect | StreamKind::Plan | StreamKind::Task)
}

impl Known {
    /// A stream that does not exist yet.
    pub(super) fn new(stream: StreamId) -> Known {
        let kind = match stream.kind {
            StreamKind::Plan => ObjectKind::Plan,
            StreamKind::Task => ObjectKind::Task,
            _ => ObjectKind::Effect,
        };
        Known { version: 0, object: (kind, stream.id), is_private: false, erasures: 0 }
    }

    pub(super) fn of(stream: StreamId, records: &[Record]) -> Known {
        let mut known = Known::new(stream);
        for record in records {
            known.note(stream, &record.event);
            known.version = record.version;
        }
        known
    }

    /// One more event.
    pub(super) fn note(&mut self, stream: StreamId, event: &Event) {
        self.version += 1;
        self.is_private |= matches!(event, Event::Private(_));
        match event.plain() {
            Event::Erased { .. } => self.erasures = self.erasures.saturating_add(1),
            Event::Pruned(tombstone) => self.erasures = self.erasures.max(tombstone.erasures),
            _ => {}
        }
        if let Some(object) = object(stream, event.plain()) {
            self.object = object;
        }
    }
}

/// What an event says that it belongs to; none where it says nothing of that.
pub(super) fn object(stream: StreamId, event: &Event) -> Option<Object> {
    let own = (ObjectKind::Effect, stream.id);
    let tied = |tenant: &str, ties: &Ties| {
        let parent = ties.parent.as_deref();
        Some(parent.map_or(own, |parent| (ObjectKind::Parent, StreamId::parent(tenant, parent).id)))
    };
    match event {
        Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
            tied(&proposal.tenant, &proposal.ties)
        }
        Event::Dispatched(dispatch) => tied(&dispatch.tenant, &dispatch.ties),
        Event::Pruned(tombstone) => tied(&tombstone.tenant, &tombstone.ties),
        Event::PlanFrozen { parent: Some(parent), .. } => Some((ObjectKind::Parent, *parent)),
        Event::TaskBegun(task) => {
            let tenant = task.context.get("tenant").or(task.owner.tenant.as_ref());
            let parent = tenant.zip(task.context.get("parent"));
            parent.map(|(tenant, parent)| (ObjectKind::Parent, StreamId::parent(tenant, parent).id))
        }
        _ => None,
    }
}

/// The stream that says of a key's object how often it was erased; none where nothing erases it.
pub(super) fn record_of(key: &KeyName) -> Option<StreamId> {
    match key.kind {
        ObjectKind::Parent => Some(StreamId { kind: StreamKind::Parent, id: key.id }),
        ObjectKind::Effect => Some(StreamId::effect(key.id)),
        ObjectKind::Plan | ObjectKind::Task => None,
    }
}

/// Which key of a parent is in use, by its records.
pub(super) fn in_use(records: &[Record]) -> u32 {
    let over = records.iter().filter_map(|record| match &record.event {
        Event::Erased { key: KeyName { generation, .. }, .. } | Event::KeyRetired { generation, .. } => {
            Some(generation.saturating_add(1))
        }
        _ => None,
    });
    over.max().unwrap_or(0)
}

/// Whether the event says that what is under this key is erased.
pub(super) fn erases(event: &Event, key: &KeyName) -> bool {
    let of = |erased: &KeyName| (erased.kind, erased.id) == (key.kind, key.id) && key.generation <= erased.generation;
    matches!(event.plain(), Event::Erased { key: erased, .. } if of(erased))
}
