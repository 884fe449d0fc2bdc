//! The other systems, each from its own package, under `target/baselines`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::guests::run;

/// From PyPI.
const PYTHON: [&str; 3] = ["effect-ledger==0.1.2", "exactly-once==0.2.1", "dbos==3.4.0"];
/// From npm; the SDK needs a newer Node than many machines have.
const NODE: [&str; 3] = ["@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.17.2", "node@22.23.3"];

/// Installs what is missing.
pub(crate) fn install(root: &Path) -> Result<()> {
    let folder = root.join("target/baselines");
    fs::create_dir_all(&folder)?;
    let python = folder.join("venv/bin/python");
    if !folder.join("venv/installed").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PYTHON))?;
        fs::write(folder.join("venv/installed"), PYTHON.join("\n"))?;
    }
    if !folder.join("node_modules/installed").exists() {
        fs::write(folder.join("package.json"), "{ \"private\": true, \"type\": \"module\" }\n")?;
        run(Command::new("npm")
            .current_dir(&folder)
            .args(["install", "--no-audit", "--no-fund", "--silent"])
            .args(NODE))?;
        fs::write(folder.join("node_modules/installed"), NODE.join("\n"))?;
    }
    Ok(())
}
