//! The Kubernetes manifests against the published schemas, strictly, for several versions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Told, arguments};
use crate::harness::{Run, root};
use crate::python;

/// Brings the schemas along, so that nothing is fetched when it runs.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";
/// The oldest version with all that the manifests use, and the newest that the validator knows.
const VERSIONS: [&str; 2] = ["1.29.0", "1.37.0"];
/// What schemas do not see.
const CONSISTENT: &str = include_str!("consistent.py");
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
    seen.push(parts_mean_each_other(&python)?);
    refuses_a_mistake(&python, &validator)?;
    seen.push("a misspelled key and a misnamed volume are refused, so these can fail".to_owned());
    let (started, missing) = arguments::run(&FILES.map(|(name, _)| name))?;
    seen.extend(started);
    Ok(match missing {
        Some(missing) => Told::Partly(seen, missing),
        None => Told::Seen(seen),
    })
}

fn validate(validator: &Path, version: &str, file: &Path) -> Result<Run> {
    Run::of(Command::new(validator).args(["--strict", "-k", version]).arg(file))
}

fn compare(python: &Path, file: &Path) -> Result<Run> {
    Run::of(Command::new(python).arg("-c").arg(CONSISTENT).arg(file))
}

fn parts_mean_each_other(python: &Path) -> Result<String> {
    for (name, _) in FILES {
        let run = compare(python, &root().join("deploy/kubernetes").join(name))?;
        ensure!(run.code == Some(0), "{}{}", run.stdout, run.stderr);
    }
    Ok("selectors, volumes, files, ports and accounts that they name are there".to_owned())
}

fn refuses_a_mistake(python: &Path, validator: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, _) in FILES {
        let text = fs::read_to_string(root().join("deploy/kubernetes").join(name))?;
        let broken = folder.path().join(name);
        let spoil = |right: &str, wrong: &str| {
            ensure!(text.contains(right), "{name} has no {right}");
            Ok(fs::write(&broken, text.replacen(right, wrong, 1))?)
        };
        spoil("terminationGracePeriodSeconds:", "terminationGraceSeconds:")?;
        let run = validate(validator, VERSIONS[1], &broken)?;
        ensure!(run.code != Some(0), "{name} with a mistake is taken: {}", run.stdout);
        spoil("{ name: tmp, mountPath", "{ name: temp, mountPath")?;
        let run = compare(python, &broken)?;
        ensure!(run.code == Some(1) && run.stdout.contains("unknown volume temp"), "{}{}", run.stdout, run.stderr);
    }
    Ok(())
}
