//! The limits as people read them: one table in the program, and the same in LIMITS.md.

use std::fmt::Write as _;
use std::fs;

use oncegate_tests::harness::{Options, root};
use serde_json::Value;

use crate::hostile;

fn harness(limits: &str) -> oncegate_tests::harness::Harness {
    let options = Options { limits: limits.to_owned(), ..Options::default() };
    oncegate_tests::harness::Harness::with(hostile::guest(), options).unwrap()
}

fn listed(limits: &str) -> Vec<Value> {
    let run = harness(limits).run(&["policy", "limits", "--json"]).unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json().unwrap()["limits"].as_array().unwrap().clone()
}

fn page(limits: &[Value]) -> String {
    let mut page = String::from(
        "# Limits\n\nEvery limit that a component, a call or a provider can meet, as `oncegate policy limits` prints it. Its name is what errors\n\
         and the outcome's `limit` say, and the key in the policy's `[limits]` where the policy may set it.\n\n\
         | limit | default | unit | set by | beyond it | reason |\n|---|---|---|---|---|---|\n",
    );
    for limit in limits {
        let text = |key: &str| limit[key].as_str().unwrap();
        let set = if limit["overridable"] == true { "policy" } else { "fixed" };
        let (name, default, unit) = (text("name"), &limit["default"], text("unit"));
        writeln!(page, "| `{name}` | {default} | {unit} | {set} | {} | {} |", text("beyond"), text("reason")).unwrap();
    }
    page
}

/// `BLESS=1` writes the page.
#[test]
fn the_page_shows_the_limits_that_the_program_has() {
    let file = root().join("host/LIMITS.md");
    let page = page(&listed(""));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), page, "BLESS=1 writes it anew");
}

#[test]
fn what_a_policy_sets_is_shown_beside_the_default() {
    let limits = listed("memory = \"32MiB\"\nhandles = 20\n");
    let of = |name: &str| limits.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!((&of("memory")["value"], &of("memory")["default"]), (&(32 << 20).into(), &(64 << 20).into()));
    assert_eq!((&of("handles")["value"], &of("handles")["default"]), (&20.into(), &1_000.into()));
    let text = harness("memory = \"32MiB\"").run(&["policy", "limits"]).unwrap();
    assert!(text.stdout.contains("memory\t32 MiB\t64 MiB\tpolicy\ttool_limit\t"), "{}", text.stdout);
    assert!(text.stdout.contains("stack\t512 KiB\t512 KiB\tfixed\ttool_limit\t"), "{}", text.stdout);
}
