//! Where a lookup is sent on to: to endpoints that the policy names for it, without the credential of another.

use std::sync::Arc;

use super::cases::{Case, Filled, steps};
use super::villain::{self, tag};
use super::{SHOP_SECRET, Scene, each};

fn filled(scene: &Scene, case: &str) -> Filled {
    let mut filled = Filled::with(r#"{"object":"moved"}"#, SHOP_SECRET);
    let port = |villain: &villain::Villain| villain.address().port().to_string();
    filled.words.extend([
        ("case", case.to_owned()),
        ("here", scene.shop.url()),
        ("named", scene.files.url()),
        ("stranger", scene.stranger.url()),
        ("stranger-port", port(&scene.stranger)),
        ("here-port", port(&scene.shop)),
        ("named-port", port(&scene.files)),
    ]);
    filled
}

#[test]
fn a_lookup_goes_on_to_named_places_and_takes_no_credential_along() {
    let cases = Arc::new(Case::all("redirects"));
    let scene = Scene::start();
    let played = Arc::clone(&cases);
    let words: Vec<(String, Filled)> =
        cases.iter().map(|case| (case.name.clone(), filled(&scene, &case.name))).collect();
    scene.shop.plays(move |heard, number| {
        let case = played.iter().find(|case| case.name == tag(heard)).unwrap();
        let (_, filled) = words.iter().find(|(name, _)| *name == case.name).unwrap();
        steps(case.section(number), filled)
    });
    scene.files.plays(|_, _| villain::json(200, r#"{"object":"moved"}"#));
    scene.stranger.plays(|_, _| villain::json(200, r#"{"object":"stolen"}"#));
    let heard = each(&cases, |case| scene.caller.show(&case.name));
    assert_eq!(scene.stranger.connections(), 0, "{:?}", scene.stranger.heard());
    let (at_shop, at_files) = (scene.shop.heard(), scene.files.heard());
    for (case, heard) in cases.iter().zip(heard) {
        let name = &case.name;
        assert_eq!(heard["status"] == "done", case.key("lookup") == "given", "{name}: {heard}");
        assert!(!heard.to_string().contains("stolen"), "{name}: {heard}");
        let count = |all: &[villain::Heard]| all.iter().filter(|one| tag(one) == *name).count().to_string();
        assert_eq!(count(&at_shop), case.key("here"), "{name}");
        assert_eq!(count(&at_files), case.key("named"), "{name}");
    }
    for one in &at_files {
        let all = one.text();
        assert!(!all.contains(SHOP_SECRET) && !all.to_ascii_lowercase().contains("\r\nreferer"), "{all}");
        assert!(one.headers("authorization").is_empty() && one.headers("x-trace").is_empty(), "{all}");
        assert_eq!(one.headers("host"), [scene.files.address().to_string()], "{all}");
    }
    for one in &at_shop {
        assert_eq!(one.headers("authorization"), [format!("Bearer {SHOP_SECRET}")], "{}", one.text());
        assert!(one.headers("referer").is_empty() && one.headers("cookie").is_empty(), "{}", one.text());
        assert_eq!(one.method(), "GET");
    }
    let log = scene.logs("sent on");
    assert!(!log.contains(SHOP_SECRET), "{log}");
}

#[test]
fn what_settles_an_effect_is_not_looked_up_elsewhere() {
    let scene = Scene::start();
    let filled = filled(&scene, "E-1");
    scene.pay.plays(move |heard, _| match heard.method().as_str() {
        "GET" => steps("HTTP/1.1 302 Found\\r\\nLocation: {named}/files/x\\r\\nContent-Length: 0\\r\\n\\r\\n", &filled),
        _ => villain::json(500, "{}"),
    });
    scene.files.plays(|_, _| villain::json(200, r#"{"data":[]}"#));
    for _ in 0..2 {
        assert_eq!(scene.act("E-1")["status"], "pending");
    }
    let asked = scene.pay.heard().iter().filter(|one| one.method() == "GET").count();
    let posts = scene.pay.heard().len() - asked;
    assert!(asked >= 1 && posts == 1, "{asked} {posts}");
    assert_eq!(scene.files.connections(), 0);
}
