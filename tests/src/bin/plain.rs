//! A tool without a host, as most are written, and the control of the fault matrix: it knows a call by a
//! hash of its arguments, tries three times, and stores the answer afterwards. Its oracle must fail.
//!
//! `plain HOME PROVIDER-URL KIND TARGET WORDS`

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use oncegate_tests::client::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// As HTTP clients do by default.
const TRIES: usize = 3;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [home, url, kind, target, words] = &arguments[..] else {
        anyhow::bail!("plain HOME PROVIDER-URL KIND TARGET WORDS");
    };
    let digest = Sha256::digest(format!("{kind}\n{target}\n{words}"));
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let file = PathBuf::from(home).join(name);
    let receipt = match fs::read_to_string(&file) {
        Ok(known) => Some(known),
        Err(_) => (0..TRIES).find_map(|_| send(url, kind, target, words).ok()),
    };
    if let Some(receipt) = &receipt {
        fs::write(&file, receipt)?;
        fs::File::open(&file)?.sync_all()?;
    }
    let told = match receipt {
        Some(receipt) => {
            json!({ "status": "done", "effects": [{ "label": target, "state": "done", "receipt": receipt }] })
        }
        None => json!({ "status": "failed", "next_action": "none", "effects": [] }),
    };
    println!("{told}");
    Ok(())
}

fn send(url: &str, kind: &str, target: &str, words: &str) -> Result<String> {
    let (path, body) = match kind {
        "email" => ("/v1/emails", json!({ "to": target, "subject": words, "body": words }).to_string()),
        _ => {
            let charge = target.trim_start_matches("R-");
            ("/v1/refunds", format!("charge=ch_{charge}&metadata[return]={target}"))
        }
    };
    let (status, answer) =
        Client::within(url, std::time::Duration::from_secs(1)).send("POST", path, &[], body.as_bytes())?;
    anyhow::ensure!(status == 200, "the provider answered {status}");
    let answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["id"].as_str().context("no id")?.to_owned())
}
