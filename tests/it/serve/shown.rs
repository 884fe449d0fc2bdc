//! What the README shows of clients is what other tests run.

use std::fs;

use oncegate_tests::harness::root;

#[test]
fn the_readme_shows_the_files_that_run() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let files =
        ["desktop/config.json", "langgraph/refund_graph.py", "openai-agents/refund_agent.py", "proxy/oncegate.conf"];
    for file in files {
        let text = fs::read_to_string(root().join("tests/clients").join(file)).unwrap();
        assert!(readme.contains(&format!("\n{}\n```", text.trim_end())), "the README does not show {file} as it is");
    }
}
