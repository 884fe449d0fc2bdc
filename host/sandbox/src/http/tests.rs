//! One exchange against a server that answers with exact bytes, well or badly.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// What the witness saw.
#[derive(Default)]
struct Seen {
    pieces: Vec<(u64, Vec<u8>)>,
    stop: bool,
    waits_for: Option<tokio::sync::oneshot::Receiver<()>>,
}

#[async_trait::async_trait]
impl Witness for Seen {
    async fn before_first_byte(&mut self) -> Result<(), String> {
        if let Some(told) = self.waits_for.take() {
            told.await.unwrap();
        }
        if self.stop { Err("fenced".to_owned()) } else { Ok(()) }
    }

    async fn received(&mut self, offset: u64, bytes: &[u8]) {
        self.pieces.push((offset, bytes.to_vec()));
    }
}

const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(2),
    total: Duration::from_secs(2),
    idle: Duration::from_millis(700),
    answer_bytes_max: 300_000,
};

fn private() -> Route {
    Route { allow_private: true, ..Route::default() }
}

/// Serves one connection: the pieces with a pause before each, then closes or holds it open.
async fn server(pieces: Vec<(u64, Vec<u8>)>, hold: bool) -> (String, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/refunds?x=1", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let read = stream.read(&mut asked).await.unwrap();
        asked.truncate(read);
        for (pause, bytes) in pieces {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let _ = stream.write_all(&bytes).await;
        }
        if hold {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        asked
    });
    (url, served)
}

fn post(url: String) -> Request {
    let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
    Request { method: "POST".to_owned(), url, headers, body: b"hello".to_vec() }
}

async fn run(pieces: Vec<(u64, Vec<u8>)>, hold: bool) -> (Exchange, Seen, Vec<u8>) {
    let (url, served) = server(pieces, hold).await;
    let mut seen = Seen::default();
    let exchange = exchange(&post(url), &[], &private(), PATIENCE, &mut seen).await.unwrap();
    let asked = if hold { Vec::new() } else { served.await.unwrap() };
    (exchange, seen, asked)
}

const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok";

#[tokio::test]
async fn a_small_whole_answer_needs_no_evidence() {
    let (exchange, seen, asked) = run(vec![(0, WHOLE.to_vec())], false).await;
    assert_eq!((exchange.end, exchange.raw.as_slice()), (End::Complete, WHOLE));
    assert!(seen.pieces.is_empty());
    assert_eq!(exchange.sent_bytes, asked.len() as u64);
    let asked = String::from_utf8(asked).unwrap();
    assert!(asked.starts_with("POST /v1/refunds?x=1 HTTP/1.1\r\n") && asked.ends_with("\r\n\r\nhello"), "{asked}");
    assert_eq!(asked.to_lowercase().matches("content-length").count(), 1);
}

#[tokio::test]
async fn a_head_whose_body_is_late_is_stored_first() {
    let (head, body) = WHOLE.split_at(WHOLE.len() - 2);
    let (exchange, seen, _) = run(vec![(0, head.to_vec()), (200, body.to_vec())], false).await;
    assert_eq!(exchange.end, End::Complete);
    assert_eq!(seen.pieces, vec![(0, head.to_vec())]);
    assert_eq!(exchange.raw, WHOLE);
}

#[tokio::test]
async fn a_large_answer_is_stored_in_pieces_that_join() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n".to_vec();
    answer.extend(std::iter::repeat_n(7, 200_000));
    let (exchange, seen, _) = run(vec![(0, answer.clone())], false).await;
    assert_eq!((exchange.end, &exchange.raw), (End::Complete, &answer));
    let mut joined = Vec::new();
    for (offset, piece) in seen.pieces {
        assert_eq!(offset, joined.len() as u64);
        joined.extend(piece);
    }
    assert_eq!(joined, answer[..exchange.witnessed]);
}

#[tokio::test]
async fn bad_ends_are_told_apart_and_every_byte_is_kept() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok".to_vec();
    let (exchange, ..) = run(vec![(0, cut.clone())], false).await;
    assert_eq!((exchange.end, exchange.raw), (End::Truncated, cut.clone()));
    let (exchange, seen, _) = run(vec![(0, cut.clone())], true).await;
    assert_eq!((exchange.end, &exchange.raw), (End::TimedOut, &cut));
    assert_eq!(seen.pieces, vec![(0, cut)]);
    let (exchange, ..) = run(vec![(0, b"not http at all\r\n\r\n".to_vec())], false).await;
    assert_eq!((exchange.end, exchange.raw.as_slice()), (End::Broken, b"not http at all\r\n\r\n".as_slice()));
    let (exchange, ..) = run(vec![], true).await;
    assert_eq!((exchange.end, exchange.raw.len()), (End::TimedOut, 0));
    assert!(exchange.sent_bytes > 0);
}

#[tokio::test]
async fn an_answer_beyond_the_cap_ends_the_exchange() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n".to_vec();
    answer.extend(std::iter::repeat_n(7, 400_000));
    let (exchange, ..) = run(vec![(0, answer.clone())], true).await;
    assert_eq!(exchange.end, End::TooLarge);
    assert_eq!(exchange.raw, answer[..PATIENCE.answer_bytes_max]);
}

#[tokio::test]
async fn a_fence_stops_before_the_first_byte() {
    let (url, served) = server(vec![], false).await;
    let mut seen = Seen { stop: true, ..Seen::default() };
    let error = exchange(&post(url), &[], &private(), PATIENCE, &mut seen).await.unwrap_err();
    assert!(matches!(error, NotSent::Stopped(_)));
    assert_eq!(served.await.unwrap(), b"");
}

#[tokio::test]
async fn an_answer_before_the_request_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (told, waits_for) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(WHOLE).await.unwrap();
        told.send(()).unwrap();
    });
    let mut seen = Seen { waits_for: Some(waits_for), ..Seen::default() };
    let exchange = exchange(&post(url), &[], &private(), PATIENCE, &mut seen).await.unwrap();
    assert_eq!((exchange.end, exchange.raw.as_slice()), (End::Broken, WHOLE));
}

#[tokio::test]
async fn nobody_listening_is_nothing_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = exchange(&post(url), &[], &private(), PATIENCE, &mut Seen::default()).await.unwrap_err();
    assert!(matches!(error, NotSent::Connect { .. }), "{error}");
}

#[tokio::test]
async fn no_header_stands_beside_the_credentials() {
    let (url, served) = server(vec![], false).await;
    let request = Request { headers: vec![("x-key".to_owned(), "guess".to_owned())], ..post(url) };
    let secret = [("X-Key".to_owned(), http::HeaderValue::from_static("secret"))];
    let error = exchange(&request, &secret, &private(), PATIENCE, &mut Seen::default()).await.unwrap_err();
    assert!(matches!(&error, NotSent::Request(why) if !why.contains("secret")), "{error}");
    served.abort();
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_says_nothing() {
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert!(parse("POST", two, true).await.is_err() && parse("POST", two, false).await.is_err());
    let smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert!(parse("POST", smuggled, true).await.is_err());
}

#[tokio::test]
async fn stored_bytes_are_read_as_they_were_on_the_wire() {
    let chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let answer = parse("POST", chunked, true).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice(), answer.complete), (201, b"ok".as_slice(), true));
    let open_ended = b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe";
    assert_eq!(parse("POST", open_ended, false).await.unwrap().body, b"\xff\xfe");
    for broken in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"nonsense\r\n\r\n", &chunked[..chunked.len() - 5]] {
        assert!(parse("POST", broken, true).await.is_err(), "{broken:?}");
    }
}

#[tokio::test]
async fn an_answer_is_read_again_as_it_was_written_anew() {
    let chunked = b"HTTP/1.1 404 No\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n";
    let first = parse("GET", chunked, true).await.unwrap();
    let anew = parse("GET", &raw::written(&first), true).await.unwrap();
    assert_eq!((anew.status, anew.body.as_slice()), (404, b"ok".as_slice()));
    assert!(anew.headers.contains(&("x-a".to_owned(), b"b".to_vec())), "{:?}", anew.headers);
}

#[tokio::test]
async fn an_answers_date_is_read_where_it_can_be() {
    let dated = |date: &str| format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n");
    let read = async |date: &str| raw::date(&parse("GET", dated(date).as_bytes(), true).await.unwrap());
    assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT").await, Some(784_111_777_000));
    for odd in ["", "yesterday", "Sun, 06 Nov 1954 08:49:37 GMT", "1994-11-06T08:49:37Z"] {
        assert_eq!(read(odd).await, None, "{odd}");
    }
}
