//! `oncegate doctor`.

use crate::exit::Exit;
use crate::home::Home;

pub(crate) async fn run(_home: &Home) -> anyhow::Result<Exit> {
    anyhow::bail!("being written")
}
