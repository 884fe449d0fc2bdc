//! Fences, seals, and what a host does that was thought to be gone.

use std::sync::Arc;

use oncegate_ledger::hosts::{Hosts, Stopped};
use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::{Append, Effects, Event, Expect, Ledger, LedgerError, StreamId};

use super::cluster::Cluster;
use super::races::hosts;
use crate::samples::*;

fn fenced(host: [u8; 16]) -> Append {
    let event = Event::HostFenced { host, actor: "ann".into(), reason: "it is silent".into(), at: 1, decision: None };
    Append::new(StreamId::host(host), Expect::Any, event)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_fenced_host_is_stored_until_it_has_read_again() {
    let hosts = hosts(Cluster::shared(), "", 2).await;
    let (one, two) = (&hosts[0].1, &hosts[1].1);
    let name = one.incarnation().unwrap();
    assert_ne!(Some(name), two.incarnation());
    let key = [1; 32];
    let effects = Effects::new(Arc::clone(one) as Arc<dyn Ledger>);
    let row = effects.append(key, 0, dispatched(1, 0), Vec::new()).await.unwrap();
    two.append(vec![fenced(name)]).await.unwrap();
    // Each of its writers hears it once, whatever it was about to store.
    for _ in 0..8 {
        let refused = effects.advance(key, Some(&row), responded(1, b"late"), Vec::new()).await;
        let Err(refused) = refused else { break };
        assert!(refused.to_string().contains("was fenced"), "{refused}");
        assert_eq!(two.read(StreamId::effect(key)).await.unwrap().len(), 1);
    }
    // What it had sent is evidence, and is kept.
    assert_eq!(two.read(StreamId::effect(key)).await.unwrap().len(), 2);
    // A dispatch says in its own commit that its host is not fenced.
    let mut refused = Ok(Vec::new());
    for n in 0..4 {
        let guard = Append::guard(StreamId::host(name), Expect::Version(0));
        let intent = Append::new(StreamId::effect([2; 32]), Expect::Version(0), dispatched(n, 0));
        refused = one.append(vec![intent, guard]).await;
        assert!(refused.is_err(), "{refused:?}");
        // Its other writer may have heard of the fence only now.
        if !matches!(refused, Err(LedgerError::Fenced { .. })) {
            break;
        }
    }
    assert!(matches!(refused, Err(LedgerError::Conflict { found: 1, .. })), "{refused:?}");
    let known = two.incarnations().await.unwrap();
    assert!(known.windows(2).all(|pair| pair[0].fence < pair[1].fence), "{known:?}");
    assert!(known.iter().filter(|one| one.host == name && one.fenced).count() >= 2, "{known:?}");
    assert!(known.iter().all(|one| one.silent_ms < 600_000), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_ledger_takes_nothing_from_any_host() {
    let hosts = hosts(Cluster::shared(), "", 2).await;
    hosts[0].1.seal("postgres://elsewhere", "ann", "moved", 1).await.unwrap();
    for (place, ledger) in &hosts {
        for n in 0..4 {
            let refused =
                ledger.append(vec![Append::new(StreamId::effect([n; 32]), Expect::Any, dispatched(1, 0))]).await;
            assert!(matches!(refused, Err(LedgerError::Sealed { .. })), "{refused:?}");
        }
        assert!(matches!(PostgresLedger::open(&place.url).await.err(), Some(LedgerError::Sealed { .. })));
        let reader = PostgresLedger::open_for_reading(&place.url).await.unwrap();
        assert!(
            reader.scan(0, 100).await.unwrap().iter().any(|record| matches!(record.event, Event::LedgerSealed { .. }))
        );
    }
}

/// On this machine a lock says whether a process has stopped; of another machine's nothing is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_goes_by_the_name_that_it_is_fenced_by() {
    let hosts = hosts(Cluster::shared(), "", 2).await;
    let (here, there) = (Hosts::of(&hosts[0].1.identity()), Hosts::of(&hosts[1].1.identity()));
    let name = hosts[0].1.incarnation().unwrap();
    let registered = here.register_as(name).unwrap();
    assert_eq!(registered.id(), name);
    assert_eq!((here.stopped(name), there.stopped(name)), (Stopped::No, Stopped::NotKnown));
    drop(registered);
    assert_eq!((here.stopped(name), there.stopped(name)), (Stopped::Yes, Stopped::NotKnown));
}
