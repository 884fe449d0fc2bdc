//! `oncegate inspect`: all that a component could ever do, without running it; and what a new
//! version could do that the old one could not.

mod changes;
mod machine;
mod page;
mod sarif;
mod statements;
mod words;

use super::signed;
use crate::args::Inspect;
use crate::commands::policy::describe;
use crate::exit::Exit;
use crate::home::Home;
use crate::print;

pub(crate) async fn run(home: &Home, args: &Inspect) -> anyhow::Result<Exit> {
    let component = home.component(&args.component).await?;
    let new = describe(&component)?;
    let old = match &args.against {
        Some(old) => Some(describe(&home.component(old).await?)?),
        None => None,
    };
    // Who signed it is asked of the policy; one that cannot be read names nobody.
    let policy = home.policy().unwrap_or_default();
    let standing = signed::read_beside(&policy, &component, &new)?;
    let changes = old.as_ref().map(|old| changes::between(old, &new));
    let said = match (&old, &changes) {
        _ if args.sarif => print::json(&sarif::log(&args.component.to_string_lossy(), &new, changes.as_deref()), true)?,
        (Some(old), Some(changes)) if home.json() => print::json(&machine::comparison(old, &new, changes), true)?,
        (Some(old), Some(changes)) => page::comparison(old, &new, changes),
        _ if home.json() => {
            let mut said = machine::description(&new);
            said["signature"] = signed::machine(&policy, &standing);
            print::json(&said, true)?
        }
        _ => page::text(&new, &signed::words(&policy, &standing)),
    };
    print::out(&said)?;
    Ok(if changes.is_some_and(|changes| changes::does_more(&changes)) { Exit::DoesMore } else { Exit::Ok })
}
