//! When the identical stored request may be sent again.

use super::{Effect, StateTag};

/// What the host knows about sending again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResendTerms {
    /// How long the provider remembers a key, by contract; `None` where it does not say.
    pub window_ms: Option<u64>,
    /// Kept back from the window: clock error and the time a send may take.
    pub margin_ms: u64,
    /// The latest of all clocks known: the host's, the ledger's highest stamp, the database's, the
    /// provider's last `Date`, plus the clock error.
    pub latest_clock_ms: u64,
    /// The stored request renders to the identical bytes.
    pub same_request: bool,
    /// The credential has the version of the first attempt.
    pub same_credential: bool,
    /// URL and API version are those of the first attempt.
    pub same_url: bool,
}

/// Whether the stored request may be sent again under the same downstream key. A clock only ever
/// ends this permission.
///
/// # Errors
/// The reason why not, for people.
pub fn may_resend(effect: &Effect, terms: &ResendTerms) -> Result<(), String> {
    let no = |why: &str| Err(why.to_owned());
    let Some(dispatch) = &effect.dispatch else {
        return no("nothing was sent yet");
    };
    if effect.state != StateTag::Unknown {
        return Err(format!("the effect is {}, not unknown", effect.state));
    }
    if effect.frozen || effect.diverged {
        return no("the key is frozen or was contradicted");
    }
    if effect.revoke_wished {
        return no("an operator wished it revoked");
    }
    if !dispatch.provider_dedupes {
        return no("the contract does not say that the provider dedupes on key and body");
    }
    if !(terms.same_request && terms.same_credential && terms.same_url) {
        return no("the request, its credential or its URL is not the one first sent");
    }
    let Some(window) = terms.window_ms else {
        return no("the contract does not say how long the provider remembers a key");
    };
    let latest = terms.latest_clock_ms.max(effect.updated_at);
    let used = latest.saturating_sub(effect.first_dispatch_at_of_generation).saturating_add(terms.margin_ms);
    if used >= window {
        return Err(format!("the provider's window of {window} ms less the margin is over ({used} ms used)"));
    }
    Ok(())
}
