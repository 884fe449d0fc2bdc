//! The whole request is written by the host, and no value changes its shape.

use oncegate_contract::{FieldError, Request, Value, render};
use serde_json::json;

use crate::fixtures::{CAMPAIGN, Call, NOTES, ORDERS, PAYOUT, REFUNDS, operation, refund_call};

const KEY: &str = "11111111-2222-8333-8444-555555555555";

fn body(request: &Request) -> &str {
    std::str::from_utf8(&request.body).unwrap()
}

#[test]
fn a_form() {
    let refund = operation(REFUNDS, "create-refund");
    let resolved = refund_call().resolve(&refund).unwrap();
    let request = render(&refund, "https://api.pay.example", &resolved, Some(KEY)).unwrap();
    assert_eq!((request.method.as_str(), request.url.as_str()), ("POST", "https://api.pay.example/v1/refunds"));
    let headers = [
        ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
        ("idempotency-key".to_owned(), KEY.to_owned()),
    ];
    assert_eq!(request.headers, headers);
    assert_eq!(
        body(&request),
        format!(
            "metadata%5Breturn%5D=R-1001&charge=ch_1&amount=4200&metadata%5Breason%5D=damaged%20in%20transit&metadata%5Bref%5D={KEY}"
        )
    );
    let stored = serde_json::to_vec(&request).unwrap();
    assert_eq!(serde_json::from_slice::<Request>(&stored).unwrap(), request);
}

#[test]
fn a_request_that_needs_the_hosts_key_is_not_written_without() {
    let refund = operation(REFUNDS, "create-refund");
    let resolved = refund_call().resolve(&refund).unwrap();
    assert!(matches!(render(&refund, "https://p.example", &resolved, None), Err(FieldError::Invalid { .. })));
}

#[test]
fn json_objects_in_declared_order() {
    let email = operation(CAMPAIGN, "send-email");
    let call = Call::arguments(json!({ "recipients": ["ada@example.org"] })).context("trigger", "spring");
    let resolved = call.text("subject", "\"quoted\"\u{2028}").text("text", "x").resolve(&email).unwrap();
    let request = render(&email, "http://127.0.0.1:8080/mail/", &resolved, Some(KEY)).unwrap();
    assert_eq!(request.url, "http://127.0.0.1:8080/mail/v1/emails");
    assert_eq!(
        body(&request),
        format!(
            "{{\"tags\":{{\"campaign\":\"spring\",\"ref\":\"{KEY}\"}},\"to\":\"ada@example.org\",\"subject\":\"\\\"quoted\\\"\u{2028}\",\"text\":\"x\"}}"
        )
    );
}

#[test]
fn integers_are_numbers_and_constants_are_written() {
    let payout = operation(PAYOUT, "create-payout");
    let call = Call::arguments(json!({ "invoice": "i-1", "amount": "500", "currency": "usd" }));
    let request = render(&payout, "https://bank.example", &call.resolve(&payout).unwrap(), None).unwrap();
    assert_eq!(body(&request), r#"{"invoice":"I-1","money":{"amount":50000,"currency":"USD"}}"#);
}

#[test]
fn multipart_is_the_same_bytes_each_time() {
    let proof = operation(PAYOUT, "upload-proof");
    let call = Call::arguments(json!({ "invoice": "i 1", "file": "aGVsbG8=" }));
    let render = || render(&proof, "https://bank.example", &call.resolve(&proof).unwrap(), None).unwrap();
    let request = render();
    assert_eq!(request, render());
    assert_eq!(request.url, "https://bank.example/proofs/I%201");
    let boundary = request.headers[0].1.strip_prefix("multipart/form-data; boundary=").unwrap();
    let wanted = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"proof.pdf\"\r\nContent-Type: application/pdf\r\n\r\nhello\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"kind\"\r\n\r\ninvoice\r\n--{boundary}--\r\n"
    );
    assert_eq!(body(&request), wanted);
}

#[test]
fn a_body_of_bytes_and_none() {
    let text = PAYOUT
        .replace("body = \"multipart\"", "body = \"bytes\"")
        .replace("at = \"part:file\"", "at = \"body\"")
        .replace(
            "{ name = \"kind\", at = \"part:kind\", role = \"transport\", from = \"const\", value = \"invoice\" }",
            "{ name = \"kind\", at = \"header:X-Kind\", role = \"transport\", from = \"const\", value = \"invoice\" }",
        );
    let text = text.replace(", filename = \"proof.pdf\"", "");
    let proof = operation(&text, "upload-proof");
    let resolved = Call::arguments(json!({ "invoice": "i1", "file": "aGVsbG8=" })).resolve(&proof).unwrap();
    let request = render(&proof, "https://bank.example", &resolved, None).unwrap();
    assert_eq!(request.body, b"hello");
    assert_eq!(
        request.headers,
        [("content-type".to_owned(), "application/pdf".to_owned()), ("x-kind".into(), "invoice".into())]
    );
    let close = operation(PAYOUT, "close-account");
    let id = "67E55044-10B1-426F-9247-BB680E5FE0C8";
    let request = render(
        &close,
        "https://bank.example",
        &Call::arguments(json!({ "account": id })).resolve(&close).unwrap(),
        None,
    )
    .unwrap();
    assert_eq!(
        (request.url, request.body.len(), request.headers.len()),
        (format!("https://bank.example/accounts/{}", id.to_lowercase()), 0, 0)
    );
}

#[test]
fn constant_and_declared_queries() {
    let list = operation(CAMPAIGN, "list-emails");
    let resolved = Call::default().text("to", "a&b=c#d+e f%2").resolve(&list).unwrap();
    let request = render(&list, "https://mail.example", &resolved, None).unwrap();
    assert_eq!(request.url, "https://mail.example/v1/emails?limit=100&to=a%26b%3Dc%23d%2Be%20f%252");
}

fn order(id: &str) -> Result<Request, FieldError> {
    let get = operation(ORDERS, "get-order");
    let resolved = Call::arguments(json!({ "order_id": id })).resolve(&get)?;
    render(&get, "https://shop.example/api", &resolved, None)
}

#[test]
fn a_path_value_never_changes_the_urls_shape() {
    for bad in [
        "",
        ".",
        "..",
        "/",
        "a/",
        "/a",
        "a//b",
        "../admin",
        "a/../b",
        "a/./b",
        "..\\admin",
        "\\",
        "%2e",
        "%2e%2e",
        "%2E%2e%2fadmin",
        "%252e%252e",
        "..%2fadmin",
        "a\r\nb",
        "a\0b",
        "a%00b",
        "\u{85}",
        " ",
        ". ",
        "a/b",
        "a%2fb",
        "a%252fb",
        "a\\b",
        "a?b#c",
        "a#b",
        "a%3fb",
        "a;b=c",
        "..;",
        "..;x",
        "．．",
        "‥",
        "a／b",
        "a；b",
        &"x".repeat(5000),
    ] {
        assert!(order(bad).is_err(), "{bad:?} was written");
    }
    for (good, written) in [
        ("1001", "1001"),
        ("a&b=c", "a%26b%3Dc"),
        ("100%", "100%25"),
        ("é", "%C3%A9"),
        ("a b", "a%20b"),
        ("...", "..."),
        ("a@b:80", "a%40b%3A80"),
        ("{id}", "%7Bid%7D"),
        ("http://x", ""),
    ] {
        match order(good) {
            Ok(request) => assert_eq!(request.url, format!("https://shop.example/api/orders/{written}")),
            Err(error) => assert_eq!(written, "", "{error}"),
        }
    }
}

#[test]
fn a_header_value_is_one_line() {
    let text = NOTES.replace("at = \"json:/text\", role = \"generated\", max = 4000", "at = \"header:X-Text\"");
    let note = operation(&text, "create-note");
    let call = Call::arguments(json!({ "thread": "T" })).context("trigger", "t").context("sequence", "1");
    let write = |value: &str| {
        let resolved = call.clone().text("text", value).resolve(&note).unwrap();
        render(&note, "https://notes.example", &resolved, Some(KEY))
    };
    for bad in ["", " a", "a ", "a\r\nHost: evil", "a\nb", "a\tb", "a\0", "é", "\u{7f}", &"x".repeat(5000)] {
        assert!(write(bad).is_err(), "{bad:?} was written");
    }
    assert!(write("plain: text; q=\"1\"").is_ok());
}

#[test]
fn odd_base_urls_are_refused() {
    let get = operation(ORDERS, "get-order");
    let resolved = Call::arguments(json!({ "order_id": "1" })).resolve(&get).unwrap();
    for base in [
        "",
        "shop",
        "https://",
        "https://u@shop.example",
        "https://shop.example?x",
        "https://shop.example#x",
        "javascript:x",
        "https://shop.example/a/../b",
        "https://shop.example/%2e%2e",
        "https://shop.example/ a",
        "https://shop.example.",
        "https://shop.example:0",
        "https://shop.example:0443",
        "https://shop。example",
        "https://ｓhop.example",
        "https://bücher.example",
        "https://shop%2eexample",
        "https:\\\\shop.example",
        "https:shop.example",
        "https:///shop.example",
        "https://shop.example\t",
        "https://127.1",
        "https://0x7f.1",
        "https://0177.0.0.1",
        "https://2130706433",
        "https://127.0.0.01",
        "https://[0:0:0:0:0:0:0:1]",
        "https://[fe80::1%25eth0]",
        "https://１２７.0.0.1",
    ] {
        assert!(render(&get, base, &resolved, None).is_err(), "{base:?}");
    }
    for base in [
        "http://[::1]:8080/",
        "HTTPS://Shop.Example:443/api/",
        "https://xn--bcher-kva.example",
        "http://127.0.0.1:80",
        "https://shop.example:8443/a/b",
    ] {
        assert!(render(&get, base, &resolved, None).is_ok(), "{base:?}");
    }
}

#[test]
fn a_json_document_is_one_member() {
    let text =
        NOTES.replace("at = \"json:/text\", role = \"generated\", max = 4000", "at = \"json:/text\", type = \"json\"");
    let note = operation(&text, "create-note");
    let call = Call::arguments(json!({ "thread": "T" })).context("trigger", "t").context("sequence", "1");
    let document = Value::Json(json!({ "ref": "mine", "thread": "other" }));
    let resolved = call.give("text", document).resolve(&note).unwrap();
    let request = render(&note, "https://notes.example", &resolved, Some(KEY)).unwrap();
    assert_eq!(body(&request), format!(r#"{{"thread":"T","text":{{"ref":"mine","thread":"other"}},"ref":"{KEY}"}}"#));
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let call = Call::arguments(json!({ "thread": "T" })).context("trigger", "t").context("sequence", "1");
    assert!(call.give("text", Value::Json(deep)).resolve(&note).is_err());
}
