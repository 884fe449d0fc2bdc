//! `oncegate pack`.

use crate::args::Pack;
use crate::exit::Exit;
use crate::home::Home;

pub(crate) fn run(_home: &Home, _args: &Pack) -> anyhow::Result<Exit> {
    anyhow::bail!("being written")
}
