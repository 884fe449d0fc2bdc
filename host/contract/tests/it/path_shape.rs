//! A value in a path is one segment, for a strict reader and for one that decodes first and asks later.

use oncegate_contract::{Operation, render};
use percent_encoding::percent_decode_str;
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

use crate::fixtures::{Call, contract};

/// A placeholder between two segments that must stay what and where they are, and one with fixed text.
fn operation() -> Operation {
    let text = r#"
[component]
name = "c"
effect = "none"
[endpoint.e]
url = "https://e.example"
[operation.o]
effect = "none"
request = "GET e:/first/{id}/last/v-{more}.json"
fields = [ { name = "id", at = "path:id" }, { name = "more", at = "path:more" } ]
"#;
    contract(text).operations["o"].clone()
}

fn rendered(id: &str, more: &str) -> Option<String> {
    let operation = operation();
    let resolved = Call::default().text("id", id).text("more", more).resolve(&operation).ok()?;
    render(&operation, "https://e.example/base", &resolved, None).ok().map(|request| request.url)
}

/// What a careless proxy makes of a target: decoded, made narrow, cut at `?` and `#`, parameters of segments
/// dropped, backslashes turned, empty and dot segments taken out.
fn careless(target: &str, decodings: usize) -> Vec<String> {
    let mut text = target.to_owned();
    for _ in 0..decodings {
        text = percent_decode_str(&text).decode_utf8_lossy().nfkc().collect();
    }
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

fn check(id: &str, more: &str) -> Result<(), TestCaseError> {
    let Some(url) = rendered(id, more) else { return Ok(()) };
    let strict = url::Url::parse(&url).unwrap();
    let segments: Vec<&str> = strict.path_segments().unwrap().collect();
    prop_assert_eq!(strict.as_str(), &url);
    prop_assert_eq!((segments.len(), segments[0], segments[1], segments[3]), (5, "base", "first", "last"));
    prop_assert_eq!(percent_decode_str(segments[2]).decode_utf8().unwrap(), id);
    prop_assert!(strict.query().is_none() && strict.fragment().is_none());
    let target = url.strip_prefix("https://e.example").unwrap();
    for decodings in 0..3 {
        let read = careless(target, decodings);
        prop_assert_eq!(read.len(), 5, "{:?} after {} decodings of {}", read, decodings, target);
        prop_assert_eq!((read[0].as_str(), read[1].as_str(), read[3].as_str()), ("base", "first", "last"));
        prop_assert!(read[4].starts_with("v-") && read[4].ends_with(".json"), "{:?}", read);
    }
    Ok(())
}

/// Text that would be more than a segment, pasted, decoded once or twice, or made narrow.
fn hostile() -> impl Strategy<Value = String> {
    let bits = vec![
        "/", "\\", ".", "..", "%2f", "%2F", "%5c", "%2e", "%252e", "%252f", "%25", "%", "?", "#", "%3f", "%23", ";",
        "%3b", "；", "／", "．", "‥", "＼", "？", " ", "\t", "\0", "%00", "\r\n", "a", "1", "é", "℀",
    ];
    prop::collection::vec(prop::sample::select(bits), 0..6).prop_map(|bits| bits.concat())
}

proptest! {
    #[test]
    fn a_value_is_one_segment_for_every_reader(id in hostile(), more in hostile()) {
        check(&id, "1")?;
        check("1", &more)?;
        check(&id, &more)?;
    }

    #[test]
    fn so_is_any_text(id in any::<String>(), plain in "[!-~]{1,12}") {
        check(&id, "1")?;
        check(&plain, &plain)?;
    }
}

#[test]
fn plain_identifiers_are_written() {
    for id in ["R-1", "a.b", "...", "a@b:80", "100%", "é", "a b", "{id}", "~x", "a=b&c", "%zz"] {
        assert!(rendered(id, id).is_some(), "{id:?} was refused");
    }
}
