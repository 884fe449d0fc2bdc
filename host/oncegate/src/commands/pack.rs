//! `oncegate pack`: puts a contract and a WIT text into a component.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use oncegate_contract::{Contract, ContractError};
use oncegate_sandbox::describe::{Description, LoadError};
use oncegate_sandbox::{pack, read};
use serde_json::json;

use super::check::{Findings, named, read_contract};
use crate::args::Pack;
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, clean};

pub(crate) fn run(home: &Home, args: &Pack) -> anyhow::Result<Exit> {
    let file = args.contract.display().to_string();
    let text = read_contract(&args.contract)?;
    let contract = match Contract::parse(&file, &text) {
        Ok(contract) => contract,
        Err(errors) => return Ok(wrong(errors.errors())),
    };
    let wit = pack::wit_text(&args.wit).with_context(|| format!("the WIT in {} cannot be used", args.wit.display()))?;
    let packed = match pack::pack(&read(&args.component)?, &text, &wit) {
        Ok(packed) => packed,
        Err(LoadError::ContractDoesNotFit(errors)) => return Ok(wrong(&named(errors, &file))),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be packed", args.component.display())),
    };
    let description = Description::read(&packed).context("the packed component would not load")?;
    write(&args.output, &packed)?;
    let findings = Findings::of(&file, &contract);
    if home.json() {
        let made = json!({
            "output": args.output.display().to_string(),
            "digest": description.digest_text(),
            "size": description.size,
            "tools": description.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
            "warnings": findings.warnings_json(),
        });
        print::out(&print::json(&made, true)?)?;
    } else {
        findings.warn();
        print::out(&format!(
            "{} {} ({} bytes)\n",
            clean(&args.output.display().to_string()),
            description.digest_text(),
            description.size
        ))?;
    }
    Ok(Exit::Ok)
}

fn wrong(errors: &[ContractError]) -> Exit {
    for error in errors {
        eprintln!("{}", clean(&error.to_string()));
    }
    Exit::Failed
}

/// The whole file under its name, or nothing.
fn write(output: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let Some(name) = output.file_name() else { bail!("-o {} names no file", output.display()) };
    let failed = || format!("{} cannot be written", output.display());
    let temporary = output.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = std::fs::File::create_new(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, output));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.with_context(failed)
}
