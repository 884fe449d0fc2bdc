//! What Oncegate's contract for Stripe relies on, asked of a server that we did not write.

use oncegate_tests::client::Client;
use oncegate_tests::localstripe::{Localstripe, SECRET};

#[test]
fn refunds_are_made_by_form_and_found_by_charge() {
    let stripe = Localstripe::start().unwrap();
    let charge = stripe.charge(50_000).unwrap();
    assert_eq!(stripe.refunds(&charge).unwrap().len(), 0);

    let authorization = format!("Bearer {SECRET}");
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    let form = format!("charge={charge}&amount=500&metadata%5Bref%5D=abc");
    let client = Client::new(stripe.url());
    let refund = || client.send("POST", "/v1/refunds", &headers, form.as_bytes());
    assert_eq!(refund().unwrap().0, 200);
    let refunds = stripe.refunds(&charge).unwrap();
    assert_eq!(refunds.len(), 1);
    assert_eq!(refunds[0]["object"], "refund");
    assert_eq!(refunds[0]["amount"], 500);
    assert_eq!(refunds[0]["metadata"]["ref"], "abc");

    // It does not dedupe: a duplicate would show.
    assert_eq!(refund().unwrap().0, 200);
    assert_eq!(stripe.refunds(&charge).unwrap().len(), 2);

    let unknown = client.send("POST", "/v1/refunds", &headers, b"charge=ch_unknown");
    let (status, body) = unknown.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 404);
    assert_eq!(body["error"]["type"], "invalid_request_error");
}
