//! `oncegate inspect`: all that a component could ever do, without running it; and what a new
//! version could do that the old one could not.

mod changes;
mod machine;
mod page;
mod statements;
mod words;

use crate::args::Inspect;
use crate::commands::policy::describe;
use crate::exit::Exit;
use crate::home::Home;
use crate::print;

pub(crate) fn run(home: &Home, args: &Inspect) -> anyhow::Result<Exit> {
    let new = describe(&args.component)?;
    let Some(old) = &args.against else {
        print::out(&if home.json() { print::json(&machine::description(&new), true)? } else { page::text(&new) })?;
        return Ok(Exit::Ok);
    };
    let old = describe(old)?;
    let changes = changes::between(&old, &new);
    print::out(&if home.json() {
        print::json(&machine::comparison(&old, &new, &changes), true)?
    } else {
        page::comparison(&old, &new, &changes)
    })?;
    Ok(if changes::does_more(&changes) { Exit::DoesMore } else { Exit::Ok })
}
