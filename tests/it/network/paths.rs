//! Values of a path: each is refused, or one segment for a strict and for a careless reader of its request.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::json;

use super::cases::Case;
use super::villain;
use super::{Scene, each};

/// What a careless proxy makes of a target: decoded, cut at `?`, parameters dropped, dot segments taken out.
fn careless(target: &str) -> Vec<String> {
    let text = percent_decode_str(target).decode_utf8_lossy().into_owned();
    let path = text.split(['?', '#']).next().unwrap_or_default().replace('\\', "/");
    let mut kept: Vec<String> = Vec::new();
    for segment in path.split('/') {
        match segment.split(';').next().unwrap_or_default().trim() {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment.to_owned()),
        }
    }
    kept
}

#[test]
fn a_value_is_one_segment_or_is_not_sent() {
    let cases = Arc::new(Case::all("paths"));
    let scene = Scene::start();
    scene.shop.plays(|_, _| villain::json(200, "{}"));
    let heard = each(&cases, |case| scene.caller.call("show", &json!({ "id": case.text() })));
    let requests = scene.shop.heard();
    let mut sent = 0;
    for (case, heard) in cases.iter().zip(heard) {
        let refused = case.key("value") == "refused";
        assert_eq!(heard["status"] == "done", !refused, "{}: {heard}", case.name);
        let value = case.text();
        let mine = requests.iter().filter(|one| {
            let last = one.path().rsplit('/').next().unwrap_or_default().to_owned();
            percent_decode_str(&last).decode_utf8_lossy() == value
        });
        assert_eq!(mine.count(), usize::from(!refused), "{}", case.name);
        sent += usize::from(!refused);
    }
    assert_eq!(requests.len(), sent);
    for one in requests {
        let (target, read) = (one.target(), careless(&one.target()));
        assert!(target.starts_with("/objects/") && target.matches('/').count() == 2, "{target}");
        assert!(target.bytes().all(|byte| byte.is_ascii_graphic()) && !target.contains(['?', '#', ';']), "{target}");
        assert_eq!((read.len(), read[0].as_str()), (2, "objects"), "{target}");
    }
}
