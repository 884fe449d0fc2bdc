//! A provider that gives its credential away in its answers: in no form does it reach guest, agent or log.

use std::sync::Arc;

use super::cases::{Case, Filled, Step, steps};
use super::villain::{self, tag};
use super::{PAY_SECRET, SHOP_SECRET, Scene, each};

/// All bytes of a script, the framing taken out: what a reader could put together.
fn echoed(case: &Case, secret: &str) -> Vec<String> {
    let filled = Filled::with("", secret);
    let words = filled.words.into_iter().filter(|(word, text)| word.starts_with("secret") && !text.is_empty());
    let used = words.filter(|(word, _)| case.section(0).contains(&format!("{{{word}}}")));
    let whole = used.map(|(_, text)| text).filter(|text| text.len() >= secret.len());
    whole.chain([secret.to_owned()]).collect()
}

#[test]
fn no_form_of_a_secret_reaches_guest_agent_or_log() {
    let cases = Arc::new(Case::all("secrets"));
    let scene = Scene::start();
    for (villain, secret) in [(&scene.shop, SHOP_SECRET), (&scene.pay, PAY_SECRET)] {
        let played = Arc::clone(&cases);
        villain.plays(move |heard, _| {
            if heard.path() == "/effects" && heard.method() == "GET" {
                return villain::json(503, "{}");
            }
            let case = played.iter().find(|case| case.name == tag(heard)).unwrap();
            steps(case.section(0), &Filled::with(r#"{"object":"effect","id":"re_1"}"#, secret))
        });
    }
    let heard = each(&cases, |case| {
        let first = (scene.caller.show(&case.name), scene.caller.act(&case.name));
        (first, scene.caller.act(&case.name))
    });
    for (case, ((showed, acted), again)) in cases.iter().zip(heard) {
        assert_eq!(showed["status"] == "done", case.key("lookup") == "given", "{}: {showed}", case.name);
        assert_eq!(acted["status"], case.key("effect"), "{}: {acted}", case.name);
        for (told, secret) in [(&showed, SHOP_SECRET), (&acted, PAY_SECRET), (&again, PAY_SECRET)] {
            let told = told.to_string().replace("\\\\", "\\");
            for form in echoed(case, secret) {
                let escaped = serde_json::to_string(&form).unwrap().trim_matches('"').to_owned();
                let found = told.contains(&form) || told.contains(&escaped);
                assert!(!found, "{}: {form} is in {told}", case.name);
            }
        }
        let posts = scene.pay.heard().iter().filter(|one| one.method() == "POST" && tag(one) == case.name).count();
        assert!(posts == 1 || case.key("effect") == "failed", "{}: {posts}", case.name);
    }
    let log = scene.server.errors();
    for secret in [SHOP_SECRET, PAY_SECRET] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn the_forms_in_the_files_are_the_secrets() {
    let filled = Filled::with("", "a/b");
    let read = steps("{secret-percent}{secret-json}{secret-html}{secret-hex}{secret-reversed}", &filled);
    let want = "%61%2F%62\\u0061\\u002f\\u0062&#97;&#47;&#98;612f62b/a";
    assert_eq!(read, [Step::Send(want.as_bytes().to_vec())]);
}
