//! `oncegate check`.

use crate::args::Check;
use crate::exit::Exit;
use crate::home::Home;

pub(crate) fn run(_home: &Home, _args: &Check) -> anyhow::Result<Exit> {
    anyhow::bail!("being written")
}
