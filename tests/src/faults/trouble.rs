//! How the provider goes wrong, and when that ends.

use std::time::Duration;

use anyhow::Result;

use super::scenario::Scenario;
use crate::client::Client;
use crate::provider::domains::Settings;
use crate::provider::mode::{Mode, Rule};

/// One mode of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Its name in rows.
    pub name: &'static str,
    mode: Option<Mode>,
    /// The rule stays until the trouble ends; else it meets one request.
    stays: bool,
    /// No lookup works until the trouble ends.
    pub lists_down: bool,
    index_lag_ms: u64,
    /// A second object for one target is swallowed: 200 with no object in it.
    swallows: bool,
    /// The provider has forgotten a key after so long; none is its day.
    window_ms: Option<u64>,
}

const CLEAN: Trouble = Trouble {
    name: "clean",
    mode: None,
    stays: false,
    lists_down: false,
    index_lag_ms: 0,
    swallows: false,
    window_ms: None,
};

const fn once(name: &'static str, mode: Mode) -> Trouble {
    Trouble { name, mode: Some(mode), ..CLEAN }
}

const fn lost(name: &'static str) -> Trouble {
    Trouble { name, mode: Some(Mode::CompleteThenReset), ..CLEAN }
}

/// The modes.
pub static ALL: [Trouble; 20] = [
    CLEAN,
    once("timeout before", Mode::HangBefore),
    once("timeout after commit", Mode::CompleteThenHang),
    once("accept then hang", Mode::AcceptThenHang),
    once("5xx after commit", Mode::Error500After),
    once("5xx before", Mode::Error503Before),
    once("429 after commit", Mode::Error429After),
    once("429 before", Mode::Error429Before),
    once("refused", Mode::Reject402),
    once("truncated 2xx", Mode::Truncated),
    once("not the provider's answer", Mode::Garbage),
    once("body held open after a token", Mode::HeldOpen),
    once("reset before", Mode::ResetBefore),
    once("reset after headers", Mode::ResetAfterHeaders),
    once("slow", Mode::Slow),
    Trouble { index_lag_ms: 3_000, ..lost("lagging index") },
    Trouble { lists_down: true, ..lost("reconcile unavailable") },
    Trouble { lists_down: true, swallows: true, ..lost("swallowed duplicate") },
    Trouble { lists_down: true, window_ms: Some(50), ..lost("window expired") },
    Trouble { lists_down: true, stays: true, ..once("refused on resend", Mode::RefusedOnResend) },
];

/// The contract of an expired window: less than the margin that the host keeps from its end.
const SHORT_WINDOW: (&str, &str) = ("dedupe-window = \"24h\"", "dedupe-window = \"60s\"");
/// That of an index which lags for longer than a process takes to start: the contract is true.
const LONG_LAG: (&str, &str) = ("absent-after=\"900ms\"", "absent-after = \"5s\" ");

impl Trouble {
    /// Changes of the contract, beside the scenario's, that keep its length.
    pub fn edits(&self) -> &'static [(&'static str, &'static str)] {
        match (self.window_ms, self.index_lag_ms) {
            (Some(_), _) => &[SHORT_WINDOW],
            (None, 0) => &[],
            (None, _) => &[LONG_LAG],
        }
    }

    /// Starts it; `every` so manieth request for an effect meets it, none: the next one.
    ///
    /// # Errors
    /// The provider cannot be reached.
    pub fn begin(&self, provider: &Client, scenario: &Scenario, every: Option<u64>) -> Result<()> {
        provider.clear()?;
        provider.settings(&self.settings(scenario, self.lists_down))?;
        let Some(mode) = self.mode else { return Ok(()) };
        let times = if self.stays || every.is_some() { None } else { Some(1) };
        let after = every.map_or(0, |every| every / 2);
        provider.rule(&Rule {
            mode,
            path: scenario.path.to_owned(),
            method: Some("POST".to_owned()),
            after,
            times,
            every,
        })
    }

    /// Lookups work for a moment, as an outage has gaps.
    ///
    /// # Errors
    /// The provider cannot be reached.
    pub fn pause(&self, provider: &Client, scenario: &Scenario, paused: bool) -> Result<()> {
        provider.settings(&self.settings(scenario, self.lists_down && !paused))
    }

    /// Ends it: the provider is itself again.
    ///
    /// # Errors
    /// The provider cannot be reached.
    pub fn end(&self, provider: &Client) -> Result<()> {
        provider.clear()?;
        provider.settings(&Settings::default())
    }

    /// How long the window of the provider takes to close.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms.map_or(0, |window| window * 2))
    }

    fn settings(&self, scenario: &Scenario, lists_down: bool) -> Settings {
        let mut settings = Settings { lists_down, index_lag_ms: self.index_lag_ms, ..Settings::default() };
        if self.swallows {
            settings.dedupe.clear();
            settings.swallow.push(scenario.kind.to_owned());
        }
        if let Some(window) = self.window_ms {
            settings.dedupe_window_ms = window;
        }
        settings
    }
}
