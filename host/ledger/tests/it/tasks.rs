//! Tasks: whose they are, how many there may be, that they end once and that their content goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncegate_ledger::tasks::{KEPT_MAX, OPEN_MAX};
use oncegate_ledger::{
    Event, Ledger, StreamId, TaskBegun, TaskEnding, TaskOwner, Tasks, TasksError, memory::MemoryLedger,
    redb::RedbLedger, verify,
};

fn owner(tenant: &str) -> TaskOwner {
    TaskOwner { tenant: Some(tenant.to_owned()), permit: None }
}

fn begun(tenant: &str, at: u64, until: u64) -> TaskBegun {
    TaskBegun {
        owner: owner(tenant),
        tool: "issue-refund".to_owned(),
        component: [7; 32],
        name: "acme-refunds".to_owned(),
        arguments: format!("{{\"note\":\"{}\"}}", "secret ".repeat(5_000)).into_bytes().into(),
        context: BTreeMap::from([("tenant".to_owned(), tenant.to_owned())]),
        host: [9; 16],
        at,
        until,
    }
}

async fn ended_once_and_dropped(ledger: Arc<dyn Ledger>) {
    let tasks = Tasks::new(Arc::clone(&ledger));
    tasks.begin([1; 32], &begun("acme", 10, 100)).await.unwrap();
    tasks.begin([2; 32], &begun("acme", 11, 1_000)).await.unwrap();
    tasks.begin([3; 32], &begun("other", 12, 100)).await.unwrap();
    let first = tasks.get([1; 32], 20).await.unwrap().unwrap();
    assert_eq!((first.ended, first.changed_at), (None, 10));
    let arguments = tasks.load(&first.begun.arguments).await.unwrap();
    assert!(arguments.starts_with(b"{\"note\":\"secret"));

    assert_eq!(tasks.end([1; 32], TaskEnding::Answered, vec![b'r'; 40_000], 30).await, Ok(true));
    assert_eq!(tasks.end([1; 32], TaskEnding::Cancelled, b"other".to_vec(), 31).await, Ok(false));
    assert_eq!(tasks.end([8; 32], TaskEnding::Cancelled, Vec::new(), 31).await, Ok(false));
    let (ending, result) = tasks.get([1; 32], 40).await.unwrap().unwrap().ended.unwrap();
    assert_eq!(ending, TaskEnding::Answered);
    assert_eq!(tasks.load(&result).await.unwrap(), vec![b'r'; 40_000]);
    let listed = tasks.of(&owner("acme"), 40).await.unwrap();
    assert_eq!(listed.iter().map(|one| (one.id[0], one.ended)).collect::<Vec<_>>(), [(1, true), (2, false)]);
    // The names of lists are no names of tasks.
    assert_eq!(tasks.get(StreamId::tasks_of(&owner("acme")).id, 40).await, Ok(None));
    assert_eq!(tasks.get([0; 32], 40).await, Ok(None));

    assert_eq!(tasks.get([1; 32], 100).await, Ok(None), "its time is over");
    assert_eq!(tasks.drop_old(99).await, Ok(0));
    assert_eq!(tasks.drop_old(100).await, Ok(2));
    assert_eq!(tasks.drop_old(100).await, Ok(0));
    for id in [1, 3] {
        let left = ledger.read(StreamId::task([id; 32])).await.unwrap();
        assert!(matches!(&left[..], [one] if matches!(one.event, Event::TaskDropped { at: 100 })), "{left:?}");
        assert_eq!(tasks.end([id; 32], TaskEnding::Answered, Vec::new(), 101).await, Ok(false));
    }
    assert_eq!(ledger.read(StreamId::tasks_of(&owner("acme"))).await.unwrap().len(), 1);
    assert!(ledger.sweep().await.unwrap() > 30_000, "the space of large bytes comes back");
    assert!(tasks.get([2; 32], 200).await.unwrap().is_some());
    let report = verify::verify(&*ledger).await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
    let mut export = Vec::new();
    oncegate_ledger::export::export(&*ledger, 1, &mut export).await.unwrap();
    let report = verify::verify_export(&export[..]).unwrap();
    assert!(report.is_sound(), "{report:#?}");
}

async fn so_many_and_no_more(ledger: Arc<dyn Ledger>) {
    let tasks = Tasks::new(Arc::clone(&ledger));
    let small = |until| TaskBegun { arguments: b"{}".to_vec().into(), ..begun("acme", 1, until) };
    let id = |n: usize| [u8::try_from(n / 250 + 1).unwrap(), u8::try_from(n % 250 + 1).unwrap()].repeat(16);
    let id = |n: usize| <[u8; 32]>::try_from(id(n)).unwrap();
    for n in 0..KEPT_MAX {
        tasks.begin(id(n), &small(50)).await.unwrap();
        if n + 1 < KEPT_MAX && n + 1 >= OPEN_MAX {
            let full = tasks.begin([255; 32], &small(50)).await;
            assert_eq!(full, Err(TasksError::Full { open: OPEN_MAX, kept: n + 1 }));
        }
        if n + 1 >= OPEN_MAX {
            assert_eq!(tasks.end(id(n + 1 - OPEN_MAX), TaskEnding::Answered, Vec::new(), 2).await, Ok(true));
        }
    }
    let full = tasks.begin([255; 32], &small(50)).await;
    assert!(matches!(full, Err(TasksError::Full { kept: KEPT_MAX, .. })), "{full:?}");
    let another = TaskBegun { owner: owner("other"), ..small(50) };
    tasks.begin([254; 32], &another).await.unwrap();
    let later = TaskBegun { at: 60, until: 90, ..small(0) };
    tasks.begin([255; 32], &later).await.unwrap();
    assert_eq!(tasks.get([255; 32], 61).await.unwrap().unwrap().begun, later);
    assert!(ledger.read(StreamId::tasks_of(&owner("acme"))).await.unwrap().len() < 100);
}

#[tokio::test]
async fn in_memory() {
    ended_once_and_dropped(Arc::new(MemoryLedger::new())).await;
    so_many_and_no_more(Arc::new(MemoryLedger::new())).await;
}

#[tokio::test]
async fn in_redb() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Arc::new(RedbLedger::init(&folder.path().join("ledger.redb"), 1).unwrap());
    ended_once_and_dropped(ledger).await;
}

#[tokio::test]
async fn of_two_writers_one_ends_it() {
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::new());
    let (here, there) = (Tasks::new(Arc::clone(&ledger)), Tasks::new(Arc::clone(&ledger)));
    for n in 1..=20 {
        let task = begun("acme", 1, 100);
        let (one, two) = tokio::join!(here.begin([n; 32], &task), there.begin([n + 100; 32], &task));
        assert_eq!((one, two), (Ok(()), Ok(())));
        let (one, two) = tokio::join!(
            here.end([n; 32], TaskEnding::Answered, b"a".to_vec(), 2),
            there.end([n; 32], TaskEnding::Cancelled, b"c".to_vec(), 2),
        );
        assert!(one.unwrap() ^ two.unwrap());
        there.end([n + 100; 32], TaskEnding::Answered, Vec::new(), 2).await.unwrap();
    }
    assert_eq!(here.of(&owner("acme"), 50).await.unwrap().len(), 40);
}
