//! A runner that is hostile, played by a test at the other end of the socket.

use std::io::{Read, Write};

use oncegate_contract::EffectClass;
use tokio::sync::Semaphore;

use super::*;
use crate::guest::Bounds;
use crate::limits::Limits;

struct Played {
    peer: Arc<Peer>,
    code: Sealed,
    places: Arc<Semaphore>,
    /// The runner's end.
    socket: StdSocket,
}

impl Played {
    fn new() -> Self {
        let (host, socket) = StdSocket::pair().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let code = Sealed::new(b"code", EffectClass::Keyed, Vec::new(), [0; 32]).unwrap();
        let peer = Peer::listen(host, None).unwrap();
        Self { peer, code, places: Arc::new(Semaphore::new(8)), socket }
    }

    async fn give(&self) -> Given {
        self.give_printing(&Log::new(10)).await
    }

    async fn give_printing(&self, log: &Log) -> Given {
        let task = frames::task(0, &Bounds::of(&Limits::default()), &[]).unwrap();
        let place = Arc::clone(&self.places).acquire_owned().await.unwrap();
        self.peer.give(&self.code, &task, log, place)
    }

    fn say(&mut self, bytes: &[u8]) {
        // The host may have hung up already.
        let _ = self.socket.write_all(bytes);
    }
}

fn asks(call: u64) -> Vec<u8> {
    frames::asked(call, b"", &Ask::Context { name: "tenant".to_owned() })
}

fn ends(call: u64) -> Vec<u8> {
    frames::ended(call, b"", 0, &Run::Returned(Vec::new()))
}

async fn is_lost(given: &mut Given) -> bool {
    let said = tokio::time::timeout(Duration::from_secs(60), given.hear()).await.expect("nothing was said");
    matches!(said, Said::Lost)
}

#[tokio::test]
async fn a_runner_that_does_as_it_should_is_heard() {
    let mut played = Played::new();
    let log = Log::new(10);
    let mut given = played.give_printing(&log).await;
    played.say(&frames::asked(0, b"one", &Ask::Context { name: "tenant".to_owned() }));
    let Said::Asked(Ask::Context { name }) = given.hear().await else { panic!("not asked") };
    assert_eq!(name, "tenant");
    given.tell(&Told::Context(Some("acme".to_owned())));
    played.say(&frames::ended(0, b" and more than is kept", 5, &Run::Returned(Vec::new())));
    assert!(matches!(given.hear().await, Said::Ended(Run::Returned(_))));
    assert_eq!(log.text(), ("one and mo".to_owned(), 20));
    assert!(played.peer.is_alive());
    assert_eq!(played.places.available_permits(), 8);
}

/// Whatever it says that it must not: the runner is ended, and every call that it had is told so.
#[tokio::test]
async fn what_no_runner_says_ends_it() {
    let junk = vec![0xa5; 1000];
    let oversized = [u32::MAX.to_le_bytes().to_vec(), vec![0; 100]].concat();
    let cases: [(&str, Vec<u8>); 9] = [
        ("junk", junk),
        ("a frame that is too long", oversized),
        ("an empty frame", vec![0; 4]),
        ("a call that it was not given", asks(2)),
        ("the end of a call that it was not given", ends(u64::MAX)),
        ("a call after its end", [ends(0), asks(0)].concat()),
        ("two ends of one call", [ends(0), ends(0)].concat()),
        ("two questions at once", [asks(0), asks(0)].concat()),
        ("a beginning in the middle", frames::unfit("no")),
    ];
    for (name, said) in cases {
        let mut played = Played::new();
        let _first = played.give().await;
        let mut other = played.give().await;
        played.say(&said);
        assert!(is_lost(&mut other).await, "{name}");
        assert!(!played.peer.is_alive() && !played.peer.takes_more(), "{name}");
        assert_eq!(played.places.available_permits(), 8, "{name}");
        assert!(is_lost(&mut played.give().await).await, "{name}: a call after that");
    }
}

#[tokio::test]
async fn who_waits_for_an_answer_does_not_labour() {
    let mut played = Played::new();
    let mut given = played.give().await;
    assert!(!played.peer.labours());
    tokio::time::sleep(LABOURS_AFTER).await;
    assert!(played.peer.labours());
    played.say(&asks(0));
    assert!(matches!(given.hear().await, Said::Asked(_)));
    assert!(!played.peer.labours());
    given.tell(&Told::Context(None));
    tokio::time::sleep(LABOURS_AFTER).await;
    assert!(played.peer.labours(), "it computes with the answer");
}

#[tokio::test]
async fn a_runner_that_ends_early_loses_its_calls() {
    let played = Played::new();
    let mut given = played.give().await;
    drop(played.socket);
    assert!(is_lost(&mut given).await);
}

// The test's own reads block.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_waits_for_is_cancelled_and_hears_nothing() {
    let mut played = Played::new();
    let given = played.give().await;
    drop(given);
    let mut incoming = Incoming::new(frames::TO_RUNNER_BYTES_MAX);
    let mut last = 0;
    while last != frames::cancel(0)[4] {
        let count = played.socket.read(incoming.room()).unwrap();
        assert_ne!(count, 0, "no cancel came");
        incoming.came(count);
        while let Some(frame) = incoming.frame().unwrap() {
            last = frame[0];
        }
    }
    // Its place is free again when it has ended there, and not before.
    assert_eq!(played.places.available_permits(), 7);
    played.say(&[asks(0), ends(0)].concat());
    while played.places.available_permits() < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(played.peer.is_alive());
}

#[tokio::test]
async fn a_runner_that_does_not_cancel_is_ended() {
    let mut played = Played::new();
    let mut other = played.give().await;
    drop(played.give().await);
    see_it_end(Arc::downgrade(&played.peer), 7, Duration::ZERO).await;
    assert!(played.peer.is_alive(), "a call that has ended there says nothing");
    see_it_end(Arc::downgrade(&played.peer), 1, Duration::ZERO).await;
    assert!(is_lost(&mut other).await);
    played.say(&ends(1));
}

// The test's own reads block.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_brought_once_with_its_code() {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let played = Played::new();
    let (_first, _second) = (played.give().await, played.give().await);
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 65_536];
    let mut files = Vec::new();
    let mut incoming = Incoming::new(frames::TO_RUNNER_BYTES_MAX);
    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        let mut into = [io::IoSliceMut::new(&mut bytes)];
        let count = recvmsg(&played.socket, &mut into, &mut with, RecvFlags::empty()).unwrap().bytes;
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                files.extend(came);
            }
        }
        incoming.room()[..count].copy_from_slice(&bytes[..count]);
        incoming.came(count);
        while let Some(frame) = incoming.frame().unwrap() {
            kinds.push(frame[0]);
        }
    }
    assert_eq!(kinds, [1, 2, 2]);
    let [file] = &files[..] else { panic!("{} files", files.len()) };
    assert_eq!(super::super::sealed::read(file, 100).unwrap(), b"code");
}
