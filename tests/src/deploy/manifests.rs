//! The Kubernetes manifests against the published schemas, strictly, for several versions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Told;
use crate::harness::{Run, root};
use crate::python;

/// Brings the schemas along, so that nothing is fetched when it runs.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";
/// The oldest version with all that the manifests use, and the newest that the validator knows.
const VERSIONS: [&str; 2] = ["1.29.0", "1.37.0"];
const FILES: [(&str, usize); 2] = [("single.yaml", 6), ("fleet.yaml", 7)];

pub(super) fn run() -> Result<Told> {
    let python = match python::install("kubernetes-validate", VALIDATOR) {
        Ok(python) => python,
        Err(error) => return Ok(Told::NotRun(format!("{error:#}"))),
    };
    let validator = python.with_file_name("kubernetes-validate");
    let mut seen = Vec::new();
    for version in VERSIONS {
        for (name, count) in FILES {
            let file = root().join("deploy/kubernetes").join(name);
            let run = validate(&validator, version, &file)?;
            let said = format!("{}{}", run.stdout, run.stderr);
            ensure!(run.code == Some(0), "{name} against {version}: {said}");
            let passed = said.matches(" passed for resource ").count();
            ensure!(passed == count, "{name} has {count} resources, {passed} passed: {said}");
            seen.push(format!("{name}: {passed} resources are valid in Kubernetes {version}"));
        }
    }
    refuses_a_mistake(&validator)?;
    seen.push("a misspelled key is refused, so these can fail".to_owned());
    Ok(Told::Seen(seen))
}

fn validate(validator: &Path, version: &str, file: &Path) -> Result<Run> {
    Run::of(Command::new(validator).args(["--strict", "-k", version]).arg(file))
}

fn refuses_a_mistake(validator: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, _) in FILES {
        let text = fs::read_to_string(root().join("deploy/kubernetes").join(name))?;
        let (right, wrong) = ("terminationGracePeriodSeconds:", "terminationGraceSeconds:");
        let found = text.find(right).context("the manifest says how long it takes to end")?;
        let broken = folder.path().join(name);
        fs::write(&broken, format!("{}{wrong}{}", &text[..found], &text[found + right.len()..]))?;
        let run = validate(validator, VERSIONS[1], &broken)?;
        ensure!(run.code != Some(0), "{name} with a mistake is taken: {}", run.stdout);
    }
    Ok(())
}
