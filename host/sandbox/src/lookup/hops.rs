//! Where an answer sends a lookup on to, and whether it may go there.
//!
//! Each hop is judged like a first request: by the endpoints that the policy has for this component, its
//! addresses checked and pinned anew. The credential goes to the origin that it is for and to no other; once a
//! lookup has left that origin it never gets it back, since whoever it came by chose where it returns to.

use oncegate_contract::{Answer, Operation, Request};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use url::Url;

use super::once;
use crate::credential::Credential;
use crate::egress::Route;
use crate::http::Patience;
use crate::policy::{Grant, Onward};
use crate::stop::Stop;

/// Hops of one lookup; providers need one, for an object that has moved.
const HOPS_MAX: usize = 3;
/// Statuses that send a GET on to `Location`.
const MOVED: [u16; 5] = [301, 302, 303, 307, 308];
/// Bytes of a `Location`; servers refuse longer URLs.
const LOCATION_BYTES_MAX: usize = 8192;

/// Sends the request and follows where it is sent on to. The last answer, and its bytes as they may be kept.
pub(super) async fn follow(
    operation: &Operation,
    grant: &Grant,
    request: &Request,
    secret: Option<&Credential>,
    patience: Patience,
) -> Result<(Answer, Vec<u8>), Stop> {
    let until = Instant::now() + patience.total;
    let (mut request, mut route, mut shown) = (request.clone(), &grant.route, true);
    for hop in 0.. {
        let left = until.saturating_duration_since(Instant::now());
        let patience = Patience { total: left, connect: patience.connect.min(left), ..patience };
        let sent = once(operation, &request, route, secret, shown, patience).await?;
        let Some(location) = location(&sent.answer) else { return Ok((sent.answer, sent.raw)) };
        let next = location.and_then(|location| match hop {
            HOPS_MAX.. => Err("it is sent on too often"),
            _ if sent.echoes => Err("the answer holds the credential, which would go along"),
            _ => next(&request, location, grant),
        });
        let next = next.map_err(|why| {
            // Not where to: a `Location` is the provider's text, and may hold what it was shown.
            tracing::warn!(operation = %operation.name, hop, why, "a lookup was sent on and did not go");
            Stop::Unavailable("the provider sent the lookup on to where it does not go".to_owned())
        })?;
        tracing::info!(operation = %operation.name, hop, same_origin = next.same_origin, "a lookup was sent on");
        shown &= next.same_origin;
        let headers = if next.same_origin { request.headers } else { Vec::new() };
        request = Request { method: request.method, url: next.url, headers, body: Vec::new() };
        route = next.route;
    }
    Err(Stop::Unavailable("the provider sent the lookup on too often".to_owned()))
}

/// The `Location` of an answer that sends on; none of one that does not.
fn location(answer: &Answer) -> Option<Result<&str, &'static str>> {
    if !MOVED.contains(&answer.status) {
        return None;
    }
    let mut all = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("location"));
    let (_, value) = all.next()?;
    let text = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    Some(match text {
        _ if all.next().is_some() => Err("it is sent on to two places"),
        Some(text) if text.len() <= LOCATION_BYTES_MAX && !text.contains('\\') => Ok(text),
        _ => Err("where to is no URL"),
    })
}

struct Next<'a> {
    url: String,
    route: &'a Route,
    same_origin: bool,
}

/// The next request, or why there is none.
fn next<'a>(request: &Request, location: &str, grant: &'a Grant) -> Result<Next<'a>, &'static str> {
    let from = Url::parse(&request.url).map_err(|_| "it came from no URL")?;
    let mut to = from.join(location).map_err(|_| "where to is no URL")?;
    to.set_fragment(None);
    if !to.username().is_empty() || to.password().is_some() {
        return Err("where to names a user");
    }
    if hides_dots(&to) {
        return Err("where to has hidden dot segments");
    }
    let same_origin = from.origin() == to.origin();
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err("it would go on in the clear");
    }
    let place = grant.onward.iter().find(|onward| is_below(&to, onward));
    let place = place.ok_or("where to is no endpoint of a granted lookup")?;
    Ok(Next { url: to.into(), route: &place.route, same_origin })
}

/// Whether a URL is of the endpoint's origin and below its path.
fn is_below(to: &Url, onward: &Onward) -> bool {
    let Ok(base) = Url::parse(&onward.url) else { return false };
    let folder = base.path().trim_end_matches('/');
    let rest = to.path().strip_prefix(folder);
    base.origin() == to.origin() && rest.is_some_and(|rest| rest.starts_with('/'))
}

/// Dot segments that a careless reader makes of what this one takes for text.
fn hides_dots(url: &Url) -> bool {
    let path = percent_decode_str(url.path()).decode_utf8_lossy();
    let twice = percent_decode_str(&path).decode_utf8_lossy().into_owned();
    [path.as_ref(), &twice].iter().any(|path| path.split(['/', '\\', ';']).any(|part| matches!(part, "." | "..")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(urls: &[&str]) -> Grant {
        let onward = urls.iter().map(|url| Onward { url: (*url).to_owned(), route: Route::default() }).collect();
        Grant::for_tests(urls[0], onward)
    }

    fn goes(location: &str) -> Result<(String, bool), &'static str> {
        let request = Request {
            method: "GET".to_owned(),
            url: "https://api.example/v1/items/1".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        let grant = grant(&["https://api.example/v1", "https://files.example:8443", "http://10.0.0.1"]);
        next(&request, location, &grant).map(|next| (next.url, next.same_origin))
    }

    #[test]
    fn a_lookup_goes_on_below_named_endpoints_only() {
        let here = |path: &str| Ok((format!("https://api.example/v1/{path}"), true));
        assert_eq!(goes("2"), here("items/2"));
        assert_eq!(goes("/v1/items/2?a=b#frag"), here("items/2?a=b"));
        assert_eq!(goes("https://API.example:443/v1/x"), here("x"));
        assert_eq!(goes("https://files.example:8443/x"), Ok(("https://files.example:8443/x".to_owned(), false)));
        for elsewhere in [
            "/admin",
            "/v1",
            "/v10/x",
            "../../admin",
            "/v1/..%2fadmin",
            "/v1/%252e%252e/admin",
            "/v1/..;/admin",
            "//evil.example/v1/x",
            "https://evil.example/v1/x",
            "https://api.example.evil.example/v1/x",
            "https://api.example:8443/v1/x",
            "https://files.example/x",
            "http://api.example/v1/x",
            "http://10.0.0.1/x",
            "https://user@api.example/v1/x",
            "https://api.example@evil.example/v1/x",
            "https://169.254.169.254/latest/meta-data",
            "file:///etc/passwd",
            "data:text/plain,x",
            "gopher://api.example/v1/x",
            "javascript:x",
            "https://",
        ] {
            assert!(goes(elsewhere).is_err(), "{elsewhere}: {:?}", goes(elsewhere));
        }
    }

    #[test]
    fn a_location_is_one_plain_url() {
        let answer = |status, values: &[&[u8]]| {
            let headers = values.iter().map(|value| ("location".to_owned(), value.to_vec())).collect();
            Answer { status, headers, body: Vec::new(), complete: true }
        };
        assert_eq!(location(&answer(302, &[b"/x"])), Some(Ok("/x")));
        assert_eq!(location(&answer(302, &[])), None);
        assert_eq!(location(&answer(200, &[b"/x"])), None);
        assert_eq!(location(&answer(300, &[b"/x"])), None);
        for odd in [&[b"/x".as_slice(), b"/y"][..], &[b"/\\evil.example"], &[b"/x y"], &[b"/\xff"], &[b"/x\ty"]] {
            assert!(matches!(location(&answer(302, odd)), Some(Err(_))), "{odd:?}");
        }
        let long = vec![b'x'; LOCATION_BYTES_MAX + 1];
        assert!(matches!(location(&answer(302, &[&long])), Some(Err(_))));
    }
}
