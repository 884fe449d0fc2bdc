//! `oncegate inspect`.

use crate::args::Inspect;
use crate::exit::Exit;
use crate::home::Home;

pub(crate) fn run(_home: &Home, _args: &Inspect) -> anyhow::Result<Exit> {
    anyhow::bail!("being written")
}
