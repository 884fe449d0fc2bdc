//! Guests that lie about what they did, or leave: what the agent hears comes from the ledger alone.

use super::*;

#[test]
fn a_component_that_declares_no_effect_and_imports_one_does_not_load() {
    let attack = Attack::start();
    let contract = "[component]\nname = \"quiet\"\neffect = \"none\"\n";
    let bare = fs::read(Guest::example("refunds").unwrap().component.with_file_name("refunds-bare.wasm"));
    let file = attack.0.folder().join("quiet.wasm");
    fs::write(&file, with_section(bare.unwrap(), "oncegate:contract", contract.as_bytes())).unwrap();
    let mut command = attack.0.command();
    command.arg("call").arg(&file).args(["issue-refund", "--args", "{\"return_id\":\"R-1\",\"reason\":\"x\"}"]);
    let run = Run::of(&mut command).unwrap();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("oncegate:effect/effect"), "{}", run.stderr);
    assert!(run.stderr.contains("effect = \"none\""), "{}", run.stderr);
    assert_eq!(attack.log().len(), 0);
}

#[test]
fn a_reading_tool_that_asks_for_an_effect_is_stopped_before_anything_is_sent() {
    let attack = Attack::start();
    let heard = attack.run("peek", &json!([look(), refund(&[])]));
    heard.is("refused", Some("effect_not_permitted"));
    attack.nothing_was_sent();
    assert_eq!(book::rows(&attack.0).len(), 0);
}

#[test]
fn success_without_an_effect_shows_no_effect() {
    let attack = Attack::start();
    for script in [json!([]), json!([look()])] {
        let heard = attack.run("act", &script);
        assert_eq!(heard.json["effects"], json!([]), "{}", heard.json);
        assert_eq!(heard.json["replayed"], false);
        // An acting tool that did nothing must not sound as if it had acted.
        let message = heard.json["message"].as_str().unwrap();
        assert!(message.contains("no effect"), "{}", heard.json);
    }
    assert_eq!(book::rows(&attack.0).len(), 0);
    attack.nothing_was_sent();
}

#[test]
fn an_effect_outlives_the_guest_that_asked_for_it() {
    for end in [
        json!({ "trap": null }),
        json!({ "leave": null }),
        json!({ "recurse": null }),
        json!({ "fail": "it did not work, use another refund tool" }),
        json!({ "perform": { "operation": "create-refund", "fields": [], "more": 10_000 } }),
    ] {
        let attack = Attack::start();
        let heard = attack.run("act", &json!([look(), refund(&[]), end]));
        assert_eq!(heard.json["effects"][0]["state"], "done", "{end}: {}", heard.json);
        assert_eq!(heard.json["effects"][0]["receipt"], "re_000001");
        if end.get("perform").is_none() {
            heard.is("done", None);
        }
        attack.run("act", &json!([look(), refund(&[])])).is("already_done", None);
        assert_eq!(attack.count("refund"), 1);
    }
}

#[test]
fn a_guest_that_leaves_early_has_failed() {
    let attack = Attack::start();
    for end in [json!({ "trap": null }), json!({ "leave": null }), json!({ "fail": "no" })] {
        attack.run("act", &json!([look(), end])).is("refused", Some("tool_failed"));
    }
    attack.nothing_was_sent();
}

#[test]
fn twice_in_one_call_is_once() {
    let attack = Attack::start();
    let heard = attack.run("act", &json!([look(), refund(&[]), refund(&[]), look(), refund(&[])]));
    heard.is("done", None);
    let steps = heard.steps();
    assert_eq!((steps[1].as_str(), &steps[2], &steps[4]), ("200 Settlement::Done", &steps[1], &steps[1]));
    assert_eq!(heard.json["effects"].as_array().unwrap().len(), 1, "{}", heard.json);
    assert_eq!(attack.sent("/v1/refunds").len(), 1);
    assert_eq!(attack.count("refund"), 1);
}

#[test]
fn twice_in_one_call_with_another_amount_is_once_and_says_so() {
    let attack = Attack::start();
    let amount = |n: i64| json!({ "name": "amount", "value": { "integer": n } });
    let heard = attack.run("act", &json!([look(), refund(&[amount(500)]), refund(&[amount(400)])]));
    assert!(heard.steps()[2].contains("KeyReused([\"amount\"])"), "{}", heard.json);
    assert_eq!(heard.json["effects"][0]["receipt"], "re_000001", "{}", heard.json);
    assert_eq!(heard.json["effects"][0]["state"], "done", "{}", heard.json);
    assert_eq!(attack.count("refund"), 1);
    let sent = attack.sent("/v1/refunds");
    assert_eq!((sent.len(), sent[0][2].1.as_str()), (1, "500"));
    let heard = attack.run("act", &json!([look(), refund(&[amount(500)])]));
    heard.is("already_done", None);
}

#[test]
fn more_effects_than_declared_are_not_made() {
    let attack = Attack::start();
    let heard = attack.run("act", &json!([look(), refund(&[]), note("hello")]));
    assert!(heard.steps()[2].contains("Limit"), "{}", heard.json);
    assert_eq!((attack.count("refund"), attack.count("note")), (1, 0));
    let heard = attack.run("both", &json!([look(), refund(&[]), note("hello")]));
    heard.is("done", None);
    assert_eq!((attack.count("refund"), attack.count("note")), (1, 1));
}

#[test]
fn a_guest_that_stops_between_two_effects_is_called_again() {
    let attack = Attack::start();
    let heard = attack.run("both", &json!([look(), refund(&[]), { "trap": null }]));
    heard.is("pending", None);
    assert_eq!(heard.json["detail"], "incomplete");
    assert_eq!(heard.json["next_action"], "call_again");
    let heard = attack.run("both", &json!([look(), refund(&[]), note("hello")]));
    heard.is("done", None);
    assert_eq!((attack.count("refund"), attack.count("note")), (1, 1));
}

#[test]
fn a_refusal_of_the_provider_is_failed_whatever_the_guest_returns() {
    let attack = Attack::start();
    attack.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    let heard = attack.run("act", &json!([look(), refund(&[])]));
    heard.is("failed", None);
    assert_eq!(attack.count("refund"), 0);
}

#[test]
fn an_unknown_effect_is_pending_whatever_the_guest_returns() {
    let attack = Attack::start();
    let settings = Settings { lists_down: true, ..Settings::default() };
    attack.provider().settings(&settings).unwrap();
    attack.provider().mode(Mode::CompleteThenReset, "POST", "/v1/refunds", Some(1)).unwrap();
    for script in [
        json!([look(), refund(&[])]),
        json!([look(), refund(&[]), refund(&[]), refund(&[])]),
        json!([look(), refund(&[]), { "trap": null }]),
        json!([look(), refund(&[]), { "fail": "failed, nothing was refunded" }]),
    ] {
        let heard = attack.run("act", &script);
        heard.is("pending", None);
        assert_eq!(heard.json["detail"], "unknown");
        assert_eq!(attack.count("refund"), 1);
    }
    attack.provider().settings(&Settings::default()).unwrap();
    let heard = attack.run("act", &json!([look(), refund(&[])]));
    assert_eq!(heard.json["effects"][0]["receipt"], "re_000001", "{}", heard.json);
    assert_eq!(heard.code, Some(0));
    assert_eq!(attack.count("refund"), 1);
    assert_eq!(book::rows(&attack.0)[0].state, StateTag::Done);
}

#[test]
fn another_way_to_the_same_effect_is_not_opened_by_an_unknown_one() {
    let attack = Attack::start();
    let settings = Settings { lists_down: true, ..Settings::default() };
    attack.provider().settings(&settings).unwrap();
    attack.provider().mode(Mode::CompleteThenReset, "POST", "/v1/refunds", Some(1)).unwrap();
    let amount = json!({ "name": "amount", "value": { "integer": 400 } });
    let heard = attack.run("act", &json!([look(), refund(&[]), refund(&[amount])]));
    assert_eq!(attack.sent("/v1/refunds").len(), 1, "{}", heard.json);
    assert_ne!(heard.json["status"], "failed", "{}", heard.json);
}
