//! Headers: names that a contract may not declare, secrets that may not stand in them, and values that would be more
//! than one line.

use std::fs;

use oncegate_tests::harness::Harness;
use serde_json::json;

use super::cases::Case;
use super::villain;
use super::{Scene, each};

fn of_kind(kind: &str) -> Vec<Case> {
    Case::all("headers").into_iter().filter(|case| case.has(kind)).collect()
}

fn contract(name: &str) -> String {
    format!(
        "[component]\nname = \"c\"\neffect = \"none\"\n[endpoint.e]\nurl = \"https://e.example\"\n[operation.o]\n\
         effect = \"none\"\nrequest = \"GET e:/x\"\nfields = [ {{ name = \"f\", at = {} }} ]\n",
        toml::Value::String(format!("header:{name}"))
    )
}

#[test]
fn names_that_frame_route_or_identify_are_never_a_fields() {
    let harness = Harness::new("orders").unwrap();
    let file = harness.folder().join("contract.toml");
    let check = |name: &str| {
        fs::write(&file, contract(name)).unwrap();
        let run = harness.run(&["check", file.to_str().unwrap()]).unwrap();
        (run.code, format!("{}{}", run.stdout, run.stderr))
    };
    for case in of_kind("names") {
        for name in case.text().split(' ') {
            let (code, said) = check(name);
            assert!(code == Some(1) && said.contains("header"), "{name}: {said}");
        }
    }
    assert_eq!(check("X-Trace").0, Some(0));
}

#[test]
fn a_secret_stands_in_no_header_of_the_hosts_own() {
    let harness = Harness::new("orders").unwrap();
    for case in of_kind("attached") {
        let names = case.text();
        let tables = names
            .split(' ')
            .enumerate()
            .map(|(number, name)| format!("[credential.c{number}]\nfrom = \"env:KEY\"\nattach = \"header:{name}\"\n"));
        fs::write(harness.home().join("policy.toml"), tables.collect::<String>()).unwrap();
        let run = harness.run(&["policy", "check"]).unwrap();
        let said = format!("{}{}", run.stdout, run.stderr);
        for number in 0..names.split(' ').count() {
            assert!(said.contains(&format!("credential.c{number}.attach: ")), "c{number} of {names}: {said}");
        }
    }
}

#[test]
fn a_value_is_one_line_or_is_not_sent() {
    let cases = of_kind("value");
    let scene = Scene::start();
    scene.shop.plays(|_, _| villain::json(200, "{}"));
    let heard = each(&cases, |case| scene.caller.call("show", &json!({ "id": case.name, "trace": case.text() })));
    let requests = scene.shop.heard();
    for (case, heard) in cases.iter().zip(heard) {
        let refused = case.key("value") == "refused";
        assert_eq!(heard["status"] == "done", !refused, "{}: {heard}", case.name);
        let mine: Vec<_> = requests.iter().filter(|one| villain::tag(one) == case.name).collect();
        assert_eq!(mine.len(), usize::from(!refused), "{}", case.name);
        for one in mine {
            assert_eq!(one.headers("x-trace"), [case.text()], "{}", one.text());
            assert_eq!((one.headers("host").len(), one.headers("authorization").len()), (1, 1), "{}", one.text());
        }
    }
}
