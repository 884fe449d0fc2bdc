//! `oncegate check`: whether a contract is right, fits its component, and what is risky in it.

use std::path::Path;

use anyhow::{Context, bail};
use oncegate_contract::{Contract, ContractError, Interface, fits, lint};
use oncegate_sandbox::describe::{CONTRACT_SECTION, Description, LoadError};
use oncegate_sandbox::read;
use serde_json::json;
use wasm_encoder::{ComponentSection, CustomSection};

use crate::args::Check;
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Tone, clean};

/// Bytes of a contract: a text that a person wrote.
const CONTRACT_BYTES_MAX: u64 = 256 << 10;
const NOT_RUN: &str = "not in this version: the lint \"an operation whose repeats differ\", which runs the tool twice against a built-in provider";
const WASM_MAGIC: &[u8; 4] = b"\0asm";

pub(crate) fn run(home: &Home, args: &Check) -> anyhow::Result<Exit> {
    let findings = match (is_wasm(&args.file)?, &args.component) {
        (false, component) => contract_file(&args.file, component.as_deref())?,
        (true, None) => component(&args.file)?,
        (true, Some(_)) => {
            bail!("{} is a component; name the contract first and the component second", args.file.display())
        }
    };
    findings.report(home.json())?;
    Ok(if findings.errors.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// Everything found about one contract.
#[derive(Default)]
pub(super) struct Findings {
    /// What was checked, in a few words.
    subject: String,
    errors: Vec<ContractError>,
    warnings: Vec<Warning>,
}

/// A risk, or something that is not done in this version.
struct Warning {
    place: String,
    code: &'static str,
    message: String,
}

impl Findings {
    /// Of a contract that parses; `file` is how it is named.
    pub(super) fn of(file: &str, contract: &Contract) -> Self {
        let place = |key: &str| format!("{file}:{}: {key}", contract.line(key));
        let lints = lint(contract).into_iter().map(|lint| Warning {
            place: place(&lint.place),
            code: lint.code,
            message: lint.message,
        });
        let (tools, operations) = (count(contract.tools.len(), "tool"), count(contract.operations.len(), "operation"));
        let subject = format!("{}: {tools}, {operations}", contract.component.name);
        Self { subject, errors: Vec::new(), warnings: lints.collect() }
    }

    fn failed(file: &str, errors: Vec<ContractError>) -> Self {
        Self { subject: file.to_owned(), errors, warnings: Vec::new() }
    }

    /// Warnings on stderr, one line each.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            let Warning { place, code, message } = warning;
            eprintln!("{}", clean(&format!("warning: {place}: {message} [{code}]")));
        }
    }

    /// The warnings for machines.
    pub(super) fn warnings_json(&self) -> serde_json::Value {
        let all = self.warnings.iter();
        all.map(|warning| json!({ "place": warning.place, "code": warning.code, "message": warning.message })).collect()
    }

    fn report(&self, as_json: bool) -> anyhow::Result<()> {
        if as_json {
            let errors: Vec<_> = self
                .errors
                .iter()
                .map(|e| json!({ "file": e.file, "line": e.line, "key": e.key, "message": e.message }))
                .collect();
            let ok = errors.is_empty();
            let found = json!({ "ok": ok, "subject": self.subject, "errors": errors, "warnings": self.warnings_json(), "not_run": [NOT_RUN] });
            return print::out(&print::json(&found, true)?);
        }
        for error in &self.errors {
            eprintln!("{}", clean(&error.to_string()));
        }
        self.warn();
        eprintln!("{NOT_RUN}");
        match (self.errors.len(), self.warnings.len()) {
            (0, 0) => print::out(&format!("{} {}\n", Tone::Good.paint("ok"), clean(&self.subject))),
            (0, warnings) => print::out(&format!(
                "{} {}, {}\n",
                Tone::Good.paint("ok"),
                clean(&self.subject),
                count(warnings, "warning")
            )),
            (errors, _) => print::out(&format!(
                "{} {}, {}\n",
                Tone::Bad.paint("wrong"),
                clean(&self.subject),
                count(errors, "error")
            )),
        }
    }
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn is_wasm(path: &Path) -> anyhow::Result<bool> {
    use std::io::Read;
    let mut start = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    file.take(WASM_MAGIC.len() as u64)
        .read_to_end(&mut start)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(start == WASM_MAGIC)
}

/// A contract's text, bounded.
pub(super) fn read_contract(path: &Path) -> anyhow::Result<String> {
    crate::home::read_text(path, "the contract", CONTRACT_BYTES_MAX)
}

fn contract_file(path: &Path, component: Option<&Path>) -> anyhow::Result<Findings> {
    let file = path.display().to_string();
    let text = read_contract(path)?;
    let contract = match Contract::parse(&file, &text) {
        Ok(contract) => contract,
        Err(errors) => return Ok(Findings::failed(&file, errors.into_errors())),
    };
    let mut findings = Findings::of(&file, &contract);
    if let Some(component) = component {
        against(&mut findings, &file, &contract, component)?;
    }
    Ok(findings)
}

/// Whether the contract fits the component, which may carry one already.
fn against(findings: &mut Findings, file: &str, contract: &Contract, component: &Path) -> anyhow::Result<()> {
    let bytes = read(component)?;
    let refused = || format!("the component {} would not load", component.display());
    findings.subject = format!("{}; checked against {}", findings.subject, component.display());
    match Description::read(&bytes) {
        Ok(own) if own.has_contract => {
            findings.errors = fits(contract, file, &interface(&own));
            if own.contract.text != contract.text {
                let message = "the component carries another contract; build or pack it again".to_owned();
                findings.warnings.push(Warning {
                    place: component.display().to_string(),
                    code: "contract-differs",
                    message,
                });
            }
            Ok(())
        }
        Ok(_) | Err(LoadError::ContractMissing { .. }) => {
            match Description::read(&with_contract(&bytes, &contract.text)) {
                Ok(_) => Ok(()),
                Err(LoadError::ContractDoesNotFit(errors)) => {
                    findings.errors = named(errors, file);
                    Ok(())
                }
                Err(error @ LoadError::ClassContradicted { .. }) => {
                    let key = "component.effect".to_owned();
                    findings.errors = vec![ContractError {
                        file: file.to_owned(),
                        line: contract.line(&key),
                        key,
                        message: error.to_string(),
                    }];
                    Ok(())
                }
                Err(error) => Err(error).with_context(refused),
            }
        }
        Err(error) => Err(error).with_context(refused),
    }
}

fn component(path: &Path) -> anyhow::Result<Findings> {
    let file = path.display().to_string();
    match Description::read(&read(path)?) {
        Ok(description) if description.has_contract => Ok(Findings::of(&file, &description.contract)),
        Ok(description) => {
            let subject = format!("{}: no contract, so it can only compute", description.name);
            Ok(Findings { subject, ..Findings::default() })
        }
        Err(LoadError::Contract(errors)) => Ok(Findings::failed(&file, errors.into_errors())),
        Err(LoadError::ContractDoesNotFit(errors)) => Ok(Findings::failed(&file, errors)),
        Err(error) => Err(error).with_context(|| format!("the component {file} would not load")),
    }
}

/// The errors, said of the file that a person can edit.
pub(super) fn named(mut errors: Vec<ContractError>, file: &str) -> Vec<ContractError> {
    errors.iter_mut().for_each(|error| file.clone_into(&mut error.file));
    errors
}

fn with_contract(component: &[u8], text: &str) -> Vec<u8> {
    let mut bytes = component.to_vec();
    CustomSection { name: CONTRACT_SECTION.into(), data: text.as_bytes().into() }.append_to_component(&mut bytes);
    bytes
}

fn interface(description: &Description) -> Interface {
    let imports = |door: &str| description.imports.iter().any(|import| import.name.starts_with(door));
    Interface {
        imports_effect: imports("oncegate:effect/effect@"),
        imports_lookup: imports("oncegate:effect/lookup@"),
        tools: description.tools.iter().map(|tool| (tool.name.clone(), tool.input_schema.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = "[component]\nname = \"a\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n[tool.t]\noperations = [\"o\"]\n\
        [operation.o]\neffect = \"keyed\"\naction = \"x\"\nrequest = \"POST e:/x\"\nbody = \"form\"\nreceipt = \"/id\"\n\
        fields = [ { name = \"k\", at = \"form:k\", role = \"key\", from = \"argument:/k\" } ]\n";

    #[test]
    fn warnings_name_the_line() {
        let contract = Contract::parse("c.toml", CONTRACT).unwrap();
        let findings = Findings::of("c.toml", &contract);
        let typed = findings.warnings.iter().find(|warning| warning.code == "key-from-model").unwrap();
        assert_eq!(typed.place, "c.toml:14: operation.o.fields[0]");
        assert_eq!(findings.subject, "a: 1 tool, 1 operation");
    }

    #[test]
    fn errors_are_said_of_the_file_at_hand() {
        let error =
            ContractError { file: "section".to_owned(), line: 3, key: "tool.t".to_owned(), message: "no".to_owned() };
        assert_eq!(named(vec![error], "c.toml")[0].to_string(), "c.toml:3: tool.t: no");
    }
}
