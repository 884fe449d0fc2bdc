//! The fake provider counts what happened, whatever it answers.

use oncegate_tests::client::Client;
use oncegate_tests::provider::Provider;
use oncegate_tests::provider::domains::{Dedupe, Settings};
use oncegate_tests::provider::mode::{Mode, Rule};
use serde_json::{Value, json};

fn start() -> Client {
    let provider = Provider::start().unwrap();
    Client::new(&provider.url())
}

fn refund(client: &Client, form: &str) -> anyhow::Result<(u16, Vec<u8>)> {
    client.send("POST", "/v1/refunds", &[], form.as_bytes())
}

fn email(client: &Client, key: &str, subject: &str) -> (u16, Value) {
    let body = json!({ "to": "ada@example.com", "subject": subject }).to_string();
    let headers = [("Idempotency-Key", key)];
    let answer = client.send("POST", "/v1/emails", &headers, body.as_bytes());
    let (status, body) = answer.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[test]
fn every_refund_counts_and_is_found_by_its_charge() {
    let client = start();
    let form = "charge=ch_1&amount=500&metadata%5Bref%5D=abc";
    for _ in 0..2 {
        assert_eq!(refund(&client, form).unwrap().0, 200);
    }
    assert_eq!(client.count("refund").unwrap(), 2);
    let list = client.json("GET", "/v1/refunds?charge=ch_1", None).unwrap();
    assert_eq!(list["data"][1]["id"], "re_000002");
    assert_eq!(list["data"][0]["metadata"]["ref"], "abc");
    let none = client.json("GET", "/v1/refunds?charge=ch_2", None).unwrap();
    assert_eq!(none["data"], json!([]));
}

#[test]
fn refusals_do_not_count() {
    let client = start();
    let cases = [
        ("charge=nothing", "charge_not_found"),
        ("charge=ch_1&amount=50001", "amount_too_large"),
        ("charge=ch_1&amount=0", "amount_too_large"),
    ];
    for (form, code) in cases {
        let (status, body) = refund(&client, form).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, body["error"]["code"].as_str()), (400, Some(code)));
    }
    assert_eq!(client.count("refund").unwrap(), 0);
}

#[test]
fn a_repeated_key_gets_the_first_answer() {
    let client = start();
    let first = email(&client, "k", "hello");
    assert_eq!(email(&client, "k", "hello"), first);
    assert_eq!(email(&client, "k", "other words").0, 409);
    assert_eq!(client.count("email").unwrap(), 1);

    let settings = Settings { dedupe: [("email".to_owned(), Dedupe::Key)].into(), ..Settings::default() };
    client.settings(&settings).unwrap();
    assert_eq!(email(&client, "k", "other words"), first);
    assert_eq!(client.count("email").unwrap(), 1);
}

#[test]
fn modes_that_answer_wrongly_have_done_it() {
    let cases = [
        (Mode::Error500After, 500),
        (Mode::Error429After, 429),
        (Mode::Garbage, 200),
        (Mode::NonUtf8, 200),
        (Mode::Truncated, 200),
        (Mode::Big20Mb, 200),
        (Mode::Slow, 200),
    ];
    let client = start();
    for (done, (mode, status)) in cases.into_iter().enumerate() {
        let rules = client.mode(mode, "POST", "/v1/refunds", Some(1));
        rules.unwrap();
        assert_eq!(refund(&client, "charge=ch_1").unwrap().0, status, "{mode:?}");
        assert_eq!(client.count("refund").unwrap(), done + 1, "{mode:?}");
    }
}

#[test]
fn modes_that_end_the_connection_say_whether_it_happened() {
    let cases = [(Mode::ResetBefore, 0), (Mode::CompleteThenReset, 1), (Mode::ResetAfterHeaders, 1)];
    for (mode, happened) in cases {
        let client = start();
        client.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
        refund(&client, "charge=ch_1").unwrap_err();
        assert_eq!(client.count("refund").unwrap(), happened, "{mode:?}");
    }
}

#[test]
fn a_rule_waits_and_ends_as_it_says() {
    let client = start();
    let rule =
        Rule { mode: Mode::Reject402, path: "/v1/*".to_owned(), method: None, after: 1, times: Some(1), every: None };
    client.rule(&rule).unwrap();
    let statuses: Vec<u16> = (0..3).map(|_| refund(&client, "charge=ch_1").unwrap().0).collect();
    assert_eq!(statuses, [200, 402, 200]);
    let log = client.log().unwrap();
    let effects: Vec<usize> = log.iter().map(|entry| entry.effects).collect();
    assert_eq!(effects, [1, 0, 1]);
}

#[test]
fn a_lagging_index_hides_what_happened_just_now() {
    let client = start();
    let settings = Settings { index_lag_ms: 60_000, ..Settings::default() };
    client.settings(&settings).unwrap();
    refund(&client, "charge=ch_1").unwrap();
    let list = client.json("GET", "/v1/refunds?charge=ch_1", None).unwrap();
    assert_eq!(list["data"], json!([]));
    assert_eq!(client.count("refund").unwrap(), 1);
}

#[test]
fn a_shop_can_follow_the_money() {
    let client = start();
    let settings = Settings { shop_follows: true, ..Settings::default() };
    client.settings(&settings).unwrap();
    let status = || client.json("GET", "/returns/R-7", None).unwrap()["status"].clone();
    assert_eq!(status(), "received");
    refund(&client, "charge=ch_7").unwrap();
    assert_eq!(status(), "refunded");
}

#[test]
fn seeds_replace_what_is_always_there() {
    let client = start();
    let seeds = json!({ "returns": [
        { "id": "R-1", "charge": "ch_x", "amount": 100, "status": "received" },
    ] });
    client.seed(&seeds).unwrap();
    let found = client.json("GET", "/returns/R-1", None).unwrap();
    assert_eq!(found["charge"], "ch_x");
    assert_eq!(refund(&client, "charge=ch_x&amount=101").unwrap().0, 400);
    assert_eq!(refund(&client, "charge=ch_x&amount=100").unwrap().0, 200);
}

#[test]
fn one_request_in_so_many_meets_a_rule() {
    let client = start();
    let rule = Rule {
        mode: Mode::Error429After,
        path: "/v1/refunds".to_owned(),
        method: None,
        after: 1,
        times: None,
        every: Some(3),
    };
    client.rule(&rule).unwrap();
    let statuses: Vec<u16> = (0..8).map(|_| refund(&client, "charge=ch_1").unwrap().0).collect();
    assert_eq!(statuses, [200, 429, 200, 200, 429, 200, 200, 429]);
    assert_eq!(client.met().unwrap(), 3);
    assert_eq!(client.count("refund").unwrap(), 8);
}

#[test]
fn a_resend_can_be_refused_though_it_has_happened() {
    let client = start();
    client.mode(Mode::RefusedOnResend, "POST", "/v1/refunds", None).unwrap();
    assert!(refund(&client, "charge=ch_1").is_err(), "the connection is reset");
    assert_eq!(client.count("refund").unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(refund(&client, "charge=ch_1").unwrap().0, 402);
    }
    assert_eq!(client.count("refund").unwrap(), 1);
}
