//! The exact bytes that leave.

use super::villain::{self, tag};
use super::{PAY_SECRET, SHOP_SECRET, Scene};

#[test]
fn requests_are_these_bytes_and_no_others() {
    let scene = Scene::start();
    scene.shop.plays(|_, _| villain::json(200, r#"{"a":1}"#));
    scene.pay.plays(|heard, _| match heard.method().as_str() {
        "GET" => villain::json(503, "{}"),
        _ => villain::json(200, &format!(r#"{{"object":"effect","id":"re_{}"}}"#, tag(heard))),
    });
    assert_eq!(scene.show("R-1")["status"], "done");
    let agent = concat!("oncegate/", env!("CARGO_PKG_VERSION"));
    let asked = &scene.shop.heard()[0];
    let want = format!(
        "GET /objects/R-1 HTTP/1.1\r\nhost: {}\r\nuser-agent: {agent}\r\naccept-encoding: identity\r\n\
         connection: close\r\nauthorization: Bearer {SHOP_SECRET}\r\n\r\n",
        scene.shop.address()
    );
    assert_eq!(asked.text(), want);

    let acted = scene.act("R-1");
    assert_eq!(acted["status"], "done", "{acted}");
    let heard = scene.pay.heard();
    let posts: Vec<_> = heard.iter().filter(|one| one.method() == "POST").collect();
    assert_eq!(posts.len(), 1, "{posts:?}");
    let body = format!("id=R-1&ref={}", posts[0].form("ref").unwrap());
    let want = format!(
        "POST /effects HTTP/1.1\r\nhost: {}\r\nuser-agent: {agent}\r\naccept-encoding: identity\r\n\
         connection: close\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         authorization: Bearer {PAY_SECRET}\r\ncontent-length: {}\r\n\r\n{body}",
        scene.pay.address(),
        body.len()
    );
    assert_eq!(posts[0].text(), want);
    for one in heard.iter().chain([asked]) {
        let (host, length) = (one.headers("host").len(), one.headers("content-length").len());
        assert_eq!((host, length), (1, usize::from(one.method() == "POST")), "{}", one.text());
        assert!(one.headers("transfer-encoding").is_empty() && one.target().starts_with('/'), "{}", one.text());
    }
}
