//! Several servers and one ledger: a desktop client, a framework with a process per call, a service.

use std::thread;

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::http::{NEWER, Server};

use super::{TOOL, http, receipt, refunds, start};
use crate::agent::{call, refund};

const RETURNS: usize = 6;

#[test]
fn servers_and_calls_at_once_make_each_refund_once() {
    let harness = Harness::new("refunds").unwrap();
    let token = http::token(&harness, "acme");
    let service = Server::start(&mut http::command(&harness)).unwrap();
    let returns = || (1..=RETURNS).map(|n| format!("R-{n}"));
    let stdio = |who: &str| {
        let mut client = start(&harness);
        returns().map(|id| receipt(&client.call(TOOL, &refund(&id, who)).unwrap())).collect::<Vec<_>>()
    };
    let client = service.client(&token);
    let web =
        || returns().map(|id| receipt(&client.call(NEWER, TOOL, &refund(&id, "web")).unwrap())).collect::<Vec<_>>();
    let all = thread::scope(|scope| {
        let mut servers: Vec<_> = ["desk", "framework"].map(|who| scope.spawn(move || stdio(who))).into();
        servers.push(scope.spawn(web));
        for id in returns() {
            let heard = call(&harness, TOOL, &refund(&id, "a process per call"), &[]);
            assert!(heard.is_success(), "{heard:#?}");
        }
        servers.into_iter().map(|server| server.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(all.iter().all(|receipts| *receipts == all[0]), "{all:?}");
    assert_eq!(refunds(&harness), RETURNS);
}
