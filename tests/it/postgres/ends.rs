//! The database is stopped, set back, or promises too little: nothing is sent, and nothing that was done is lost.

use super::Fleet;
use super::cluster::Cluster;

#[test]
fn a_database_that_is_away_stops_effects_and_loses_none() {
    let cluster = Cluster::start(&[]);
    let fleet = Fleet::of(&cluster, 2);
    let first = fleet.call(0, "R-1001", "before");
    assert_eq!(first.status(), "done", "{first:#?}");
    cluster.kill();
    for host in 0..2 {
        let heard = fleet.call(host, "R-1002", "while it is away");
        assert_eq!(heard.status(), "refused", "{heard:#?}");
    }
    assert_eq!(fleet.refunds(), 1);
    cluster.go();
    fleet.call(1, "R-1001", "after").is_replay_of(first.receipts()[0]);
    assert_eq!(fleet.call(1, "R-1002", "after").status(), "done");
    assert_eq!(fleet.refunds(), 2);
}

#[test]
fn a_restore_to_the_past_stops_effects_until_somebody_answers_for_it() {
    let cluster = Cluster::start(&[]);
    let fleet = Fleet::of(&cluster, 2);
    let first = fleet.call(0, "R-1001", "before the backup");
    let (now, old) = (&fleet.database, format!("{}_old", fleet.database));
    let nobody = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{now}'");
    cluster.sql("postgres", &nobody);
    cluster.sql("postgres", &format!("CREATE DATABASE {old} TEMPLATE {now} OWNER ledger"));
    assert_eq!(fleet.call(0, "R-1002", "after the backup").status(), "done");
    cluster.sql("postgres", &nobody);
    cluster.sql("postgres", &format!("DROP DATABASE {now}"));
    cluster.sql("postgres", &format!("ALTER DATABASE {old} RENAME TO {now}"));
    let heard = fleet.call(0, "R-1002", "on the restored one");
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(fleet.refunds(), 2);
    let verified = fleet.run(0, &["ledger", "verify"]);
    assert_eq!(verified.code, Some(6), "{verified:?}");
    fleet.fine(0, &["ledger", "trust", "--reason", "R-1002 is checked by hand"]);
    fleet.call(0, "R-1001", "and it goes on").is_replay_of(first.receipts()[0]);
}

#[test]
fn a_server_that_may_lose_what_it_acknowledged_is_refused() {
    let cluster = Cluster::start(&[]);
    let fleet = Fleet::of(&cluster, 1);
    cluster.sql("postgres", "ALTER ROLE ledger SET synchronous_commit = off");
    let heard = fleet.call(0, "R-1001", "it may be lost");
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    let doctor = fleet.run(0, &["doctor"]);
    assert!(doctor.stdout.contains("synchronous_commit is off"), "{doctor:?}");
    cluster.sql("postgres", "ALTER ROLE ledger RESET synchronous_commit");
    cluster.sql("postgres", "ALTER SYSTEM SET fsync = off");
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    let heard = fleet.call(0, "R-1001", "it may be lost");
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(fleet.refunds(), 0);
}
