//! `oncegate pull` and `oncegate push`.

use anyhow::{Context, ensure};
use oncegate_sandbox::describe::Description;
use oncegate_sandbox::{read, rfc3339, signature};
use serde_json::json;

use crate::args::registry::{Pull, Push};
use crate::exit::{Exit, usage};
use crate::home::{self, Home};
use crate::print::{self, clean};
use crate::registry::{self, pinned};

pub(crate) async fn pull(home: &Home, args: &Pull) -> anyhow::Result<Exit> {
    let reference = registry::parse(&args.reference)?;
    let client = home.registry(&reference).await?;
    let (digest, kept) = home.fetched()?.fetch(&client, &reference).await?;
    let bytes = read(&kept)?;
    let description = Description::read(&bytes).context("what was fetched would not load")?;
    let beside = signature::beside(&kept);
    let signed = beside.exists();
    if let Some(output) = &args.output {
        std::fs::write(output, &bytes).with_context(|| format!("{} cannot be written", output.display()))?;
        if signed {
            let to = signature::beside(output);
            std::fs::copy(&beside, &to).with_context(|| format!("{} cannot be written", to.display()))?;
        }
    }
    let pinned = pinned(&reference, &digest);
    let component = description.digest_text();
    let file = args.output.as_ref().unwrap_or(&kept).display().to_string();
    if home.json() {
        let said = json!({ "reference": pinned, "digest": component, "file": file, "name": description.name, "signature": signed });
        print::out(&print::json(&said, true)?)?;
    } else {
        let signed = if signed { ", with a signature (oncegate verify)" } else { ", without a signature" };
        print::out(&format!("{pinned}\n{}: {component}{signed}\n{}\n", clean(&description.name), clean(&file)))?;
    }
    Ok(Exit::Ok)
}

pub(crate) async fn push(home: &Home, args: &Push) -> anyhow::Result<Exit> {
    let reference = registry::parse(&args.reference)?;
    ensure!(reference.digest().is_none(), usage("a component is pushed under a tag; its digest comes of it"));
    let bytes = read(&args.component)?;
    let loads = || format!("{} would not load, so it is not pushed", args.component.display());
    let description = Description::read(&bytes).with_context(loads)?;
    let beside = signature::beside(&args.component);
    let signature = match beside.exists() {
        true => Some(home::read_text(&beside, "the signature", signature::SIGNATURE_BYTES_MAX)?),
        false => None,
    };
    let client = home.registry(&reference).await?;
    let created = rfc3339(home::now_ms());
    let pinned = client.push(&reference, &description, bytes, signature.as_deref(), &created).await?;
    if home.json() {
        let said =
            json!({ "reference": pinned, "digest": description.digest_text(), "signature": signature.is_some() });
        print::out(&print::json(&said, true)?)?;
    } else {
        print::out(&format!("{pinned}\n"))?;
    }
    Ok(Exit::Ok)
}
