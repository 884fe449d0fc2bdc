//! A ledger moves from its file into a database, by the program.

use oncegate_tests::harness::Run;

use super::cluster::{Cluster, PASSWORD};
use super::{Fleet, TOOL};
use crate::agent;

#[test]
fn a_ledger_moves_with_its_history_and_its_source_says_where() {
    let mut fleet = Fleet::without_ledger(Cluster::shared());
    fleet.add_home();
    let first = agent::call(&fleet.harness, TOOL, &agent::refund("R-1001", "in the file"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let receipt = first.receipts()[0].to_owned();
    let from = format!("redb:{}", fleet.harness.home().join("ledger.redb").display());
    let moves = |reason: &str| {
        let mut command = fleet.harness.command();
        command.env("ONCEGATE_HOME", fleet.homes[0].path()).env("USER", "ann");
        command.args(["ledger", "migrate", &from, &fleet.url(), "--reason", reason, "--json"]);
        let run = Run::of(&mut command).unwrap();
        assert!(!run.stdout.contains(PASSWORD) && !run.stderr.contains(PASSWORD), "{run:?}");
        run
    };
    let nobody = moves(" ");
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    let moved = moves("a second host");
    assert_eq!(moved.code, Some(0), "{moved:?}");
    assert_eq!(moved.json().unwrap()["before"], false);
    fleet.call(0, "R-1001", "in the database").is_replay_of(&receipt);
    assert_eq!(fleet.call(0, "R-1002", "in the database").status(), "done");
    // The source, also for what it does not know.
    for return_id in ["R-1002", "R-1003"] {
        let refused = agent::call(&fleet.harness, TOOL, &agent::refund(return_id, "in the file"), &[]);
        assert_eq!(refused.status(), "refused", "{refused:#?}");
    }
    assert_eq!(agent::refunds(&fleet.harness), 2);
    let doctor = fleet.harness.run(&["doctor"]).unwrap();
    let place = format!("127.0.0.1:{}/{}", fleet.cluster.port, fleet.database);
    assert!(doctor.stdout.contains("was sealed by a migration") && doctor.stdout.contains(&place), "{doctor:?}");
    assert!(!doctor.stdout.contains(PASSWORD), "{doctor:?}");
    let again = moves("typed twice");
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(again.json().unwrap()["before"], true, "it moved once: {again:?}");
    fleet.fine(0, &["ledger", "verify"]);
}
