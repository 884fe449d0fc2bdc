//! `oncegate policy`.

use crate::args::Policy;
use crate::exit::Exit;
use crate::home::Home;

pub(crate) fn run(_home: &Home, _args: &Policy) -> anyhow::Result<Exit> {
    anyhow::bail!("being written")
}
