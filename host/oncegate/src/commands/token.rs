//! `oncegate token`: who may call over HTTP.

use anyhow::bail;
use serde_json::json;

use crate::args::{Token, TokenCommand};
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};
use crate::print::{self, Cell, clean};
use crate::serve::tokens::{self, Tokens};

pub(crate) fn run(home: &Home, args: Token) -> anyhow::Result<Exit> {
    let tokens = Tokens::of(home.directory());
    match args.command {
        TokenCommand::Add { tenant, permit, name } => add(home, &tokens, tenant, permit, name),
        TokenCommand::List => list(home, &tokens),
        TokenCommand::Revoke { name } => match tokens.revoke(&name)? {
            true => Ok(Exit::Ok),
            false => bail!("there is no token {}; `oncegate token list` shows those there are", clean(&name)),
        },
    }
}

fn add(
    home: &Home,
    tokens: &Tokens,
    tenant: String,
    permit: Option<String>,
    name: Option<String>,
) -> anyhow::Result<Exit> {
    for (what, text) in [("--tenant", Some(&tenant)), ("--permit", permit.as_ref()), ("--name", name.as_ref())] {
        if let Some(text) = text.filter(|text| oncegate_contract::safe_text(text) != **text) {
            return Err(usage(format!("{what} {}: expected letters, digits and . _ : @ + -", clean(text))));
        }
    }
    let (text, token) = tokens.add(name, tenant, permit, oncegate_sandbox::rfc3339(now_ms()))?;
    if home.json() {
        let mut shown = shown(&token);
        shown["token"] = json!(text);
        print::out(&print::json(&shown, true)?)?;
    } else {
        // On its own line and alone on stdout, so that a script can take it.
        print::out(&format!("{text}\n"))?;
        eprintln!("This is the token {} of {}; it is shown this once.", token.name, token.tenant);
    }
    Ok(Exit::Ok)
}

fn list(home: &Home, tokens: &Tokens) -> anyhow::Result<Exit> {
    let all = tokens.all()?;
    if home.json() {
        let lines = all.iter().map(|token| print::json(&shown(token), true)).collect::<anyhow::Result<String>>()?;
        print::out(&lines)?;
        return Ok(Exit::Ok);
    }
    let rows: Vec<_> = all
        .iter()
        .map(|token| {
            let permit = token.permit.as_deref().unwrap_or_default();
            [&token.name, &token.tenant, permit, &token.made].map(Cell::new).into()
        })
        .collect();
    print::out(&print::table(&["name", "tenant", "permit", "made"], &rows))?;
    Ok(Exit::Ok)
}

fn shown(token: &tokens::Token) -> serde_json::Value {
    json!({ "name": token.name, "tenant": token.tenant, "permit": token.permit, "made": token.made })
}
