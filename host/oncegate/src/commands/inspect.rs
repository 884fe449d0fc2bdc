//! `oncegate inspect`: all that a component could ever do, without running it; and what a new
//! version could do that the old one could not.

mod changes;
mod machine;
mod page;
mod sarif;
mod statements;
mod words;

use crate::args::Inspect;
use crate::commands::policy::describe;
use crate::exit::Exit;
use crate::home::Home;
use crate::print;

pub(crate) fn run(home: &Home, args: &Inspect) -> anyhow::Result<Exit> {
    let new = describe(&args.component)?;
    let old = args.against.as_deref().map(describe).transpose()?;
    let changes = old.as_ref().map(|old| changes::between(old, &new));
    let said = match (&old, &changes) {
        _ if args.sarif => print::json(&sarif::log(&args.component.to_string_lossy(), &new, changes.as_deref()), true)?,
        (Some(old), Some(changes)) if home.json() => print::json(&machine::comparison(old, &new, changes), true)?,
        (Some(old), Some(changes)) => page::comparison(old, &new, changes),
        _ if home.json() => print::json(&machine::description(&new), true)?,
        _ => page::text(&new),
    };
    print::out(&said)?;
    Ok(if changes.is_some_and(|changes| changes::does_more(&changes)) { Exit::DoesMore } else { Exit::Ok })
}
