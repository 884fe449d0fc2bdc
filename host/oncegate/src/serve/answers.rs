//! Stored answers as MCP resources: linked where a result was left out, read in pages.
//!
//! Nothing is listed: a name comes with the answer of the call that it belongs to.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use oncegate_sandbox::outcome::Outcome;
use oncegate_sandbox::{NoAnswer, StoredAnswer};
use rmcp::model::{CacheScope, ContentBlock, ErrorData, MetaObject, ReadResourceResult, Resource, ResourceContents};
use serde_json::json;
use tokio::sync::Semaphore;

use super::caller::Caller;
use super::catalog::Catalog;
use super::{facts, status};

/// In front of each name.
const SCHEME: &str = "oncegate://receipt/";
/// Bytes of an answer in one page: what a client takes as one message without trouble.
const PAGE_BYTES: usize = 256 << 10;
/// Answers read at once: each is held whole, up to the policy's `evidence-max`.
static READS: Semaphore = Semaphore::const_new(4);
/// Where a page says how long the whole is, and what comes next.
const SIZE_KEY: &str = "dev.oncegate/size";
const NEXT_KEY: &str = "dev.oncegate/next";

/// Whether anybody may read answers here.
pub(super) fn are_offered(catalog: &Catalog) -> bool {
    catalog.sandbox.policy().components.iter().any(|rule| rule.read_answers)
}

/// The links of an outcome.
pub(super) fn links(outcome: &Outcome) -> impl Iterator<Item = ContentBlock> {
    outcome.answers.iter().map(|link| {
        let mut resource = Resource::new(format!("{SCHEME}{}", link.id), link.label.clone());
        resource.description =
            Some("The provider's whole answer, as it was stored. Its text is from outside.".to_owned());
        ContentBlock::resource_link(resource)
    })
}

/// Reads a page of an answer.
pub(super) async fn read(catalog: &Catalog, caller: &Caller, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let (id, from) = parse(uri).ok_or_else(|| not_found(&NoAnswer::Unknown))?;
    let policy = catalog.sandbox.policy();
    let facts = facts::join(&policy.context, &caller.fixed, &caller.given);
    let facts = facts.map_err(|refused| ErrorData::invalid_params(refused.message.clone(), None))?;
    let tenant = facts.get("tenant").cloned().or_else(|| status::only_tenant(policy));
    let tenant = tenant.ok_or_else(|| not_found(&NoAnswer::Unknown))?;
    let served: Vec<_> = catalog.tools().into_iter().map(|entry| &*entry.component).collect();
    let _turn = READS.acquire().await;
    let answer = catalog.sandbox.stored_answer(id, &tenant, &served).await.map_err(|why| not_found(&why))?;
    let page = page(&answer, uri, id, from).ok_or_else(|| {
        ErrorData::invalid_params(
            format!("`from` is beyond the answer's {} bytes, or inside a character", answer.body.len()),
            None,
        )
    })?;
    let mut result = ReadResourceResult::new(vec![page]);
    result.cache_scope = Some(CacheScope::Private);
    Ok(result)
}

fn not_found(why: &NoAnswer) -> ErrorData {
    ErrorData::resource_not_found(why.to_string(), None)
}

/// The name in a URI, and where its page begins.
fn parse(uri: &str) -> Option<(&str, usize)> {
    let name = uri.strip_prefix(SCHEME)?;
    match name.split_once('?') {
        None => Some((name, 0)),
        Some((id, query)) => Some((id, query.strip_prefix("from=")?.parse().ok()?)),
    }
}

fn page(answer: &StoredAnswer, uri: &str, id: &str, from: usize) -> Option<ResourceContents> {
    let size = answer.body.len();
    let end = size.min(from.checked_add(PAGE_BYTES)?);
    let meta = |end: usize| {
        let mut meta = MetaObject::new();
        meta.insert(SIZE_KEY.to_owned(), json!(size));
        if end < size {
            meta.insert(NEXT_KEY.to_owned(), json!(format!("{SCHEME}{id}?from={end}")));
        }
        Some(meta)
    };
    let (uri, mime_type) = (uri.to_owned(), Some(mime_type(answer)));
    if let Ok(text) = std::str::from_utf8(&answer.body) {
        let end = (from..=end).rev().find(|at| text.is_char_boundary(*at))?;
        let text = text.get(from..end)?.to_owned();
        return Some(ResourceContents::TextResourceContents { uri, mime_type, text, meta: meta(end) });
    }
    let blob = BASE64_STANDARD.encode(answer.body.get(from..end)?);
    Some(ResourceContents::BlobResourceContents { uri, mime_type, blob, meta: meta(end) })
}

/// One of three: a provider's own words would be text from outside in a place that is read by machines.
fn mime_type(answer: &StoredAnswer) -> String {
    let said = answer.content_type.as_deref().unwrap_or_default();
    let is_json = said.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"));
    let is_text = std::str::from_utf8(&answer.body).is_ok();
    match (is_text, is_json) {
        (true, true) => "application/json",
        (true, false) => "text/plain",
        (false, _) => "application/octet-stream",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &[u8]) -> StoredAnswer {
        let content_type = Some("application/json; charset=utf-8".to_owned());
        StoredAnswer { label: "refund R-1".to_owned(), content_type, body: body.to_vec() }
    }

    #[test]
    fn pages_make_the_whole_and_end_between_characters() {
        let whole = format!("a{}", "é".repeat(PAGE_BYTES));
        let (mut read, mut from, mut pages) = (String::new(), 0, 0);
        loop {
            let page = page(&answer(whole.as_bytes()), "u", "x", from).unwrap();
            let ResourceContents::TextResourceContents { text, meta, .. } = page else { panic!("no text") };
            read.push_str(&text);
            pages += 1;
            let meta = meta.unwrap();
            assert_eq!(meta[SIZE_KEY], whole.len());
            let Some(next) = meta.get(NEXT_KEY) else { break };
            from = parse(next.as_str().unwrap()).unwrap().1;
        }
        assert_eq!((read == whole, pages), (true, 3));
        assert!(page(&answer("é".as_bytes()), "u", "x", 1).is_none());
        assert!(page(&answer(b"abc"), "u", "x", 4).is_none());
        assert!(page(&answer(b"abc"), "u", "x", usize::MAX).is_none());
        let blob = page(&answer(b"\xff"), "u", "x", 0);
        assert!(matches!(blob, Some(ResourceContents::BlobResourceContents { .. })), "{blob:?}");
    }

    #[test]
    fn a_uri_is_of_our_own_scheme() {
        assert_eq!(parse("oncegate://receipt/abc"), Some(("abc", 0)));
        assert_eq!(parse("oncegate://receipt/abc?from=7"), Some(("abc", 7)));
        for wrong in [
            "file:///etc/passwd",
            "oncegate://other/abc",
            "oncegate://receipt/abc?from=-1",
            "oncegate://receipt/abc?to=1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
