//! URLs of endpoints: what could be read as another place is refused, in policies and in contracts alike.

use std::fs;

use oncegate_tests::harness::Harness;

use super::cases::Case;

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[test]
fn a_url_is_what_it_says_or_is_refused() {
    let harness = Harness::new("orders").unwrap();
    let (accepted, refused): (Vec<Case>, Vec<Case>) =
        Case::all("urls").into_iter().partition(|case| case.key("url") == "accepted");
    for (cases, good) in [(&accepted, true), (&refused, false)] {
        let policy: String =
            cases.iter().map(|case| format!("[endpoint.{}]\nurl = {}\n", case.name, quoted(&case.text()))).collect();
        fs::write(harness.home().join("policy.toml"), policy).unwrap();
        let run = harness.run(&["policy", "check"]).unwrap();
        let said = format!("{}{}", run.stdout, run.stderr);
        assert_eq!(run.code == Some(0), good, "{said}");
        for case in cases {
            assert_eq!(said.contains(&format!("endpoint.{}.url: ", case.name)), !good, "{}: {said}", case.name);
        }

        let endpoints: String =
            cases.iter().map(|case| format!("[endpoint.{}]\nurl = {}\n", case.name, quoted(&case.text()))).collect();
        let contract = format!("[component]\nname = \"c\"\neffect = \"none\"\n{endpoints}");
        let file = harness.folder().join("contract.toml");
        fs::write(&file, contract).unwrap();
        let run = harness.run(&["check", file.to_str().unwrap()]).unwrap();
        let said = format!("{}{}", run.stdout, run.stderr);
        for case in cases {
            assert_eq!(said.contains(&format!("endpoint.{}.url", case.name)), !good, "{}: {said}", case.name);
        }
    }
}
