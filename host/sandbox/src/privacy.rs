//! How private the policy wants the ledger, with the master key that it names.

use oncegate_ledger::private::{Master, MasterKey, Terms};

use secrecy::ExposeSecret;

use crate::credential;
use crate::policy::Policy;

/// What the policy's `[privacy]` says, with the master key read. One that cannot be read is no reason not to read
/// the ledger: what is under it cannot be read, and nothing is stored in clear instead.
pub async fn terms(policy: &Policy) -> Terms {
    let master = match &policy.privacy.key_from {
        None => Master::Beside,
        Some(source) => {
            match credential::read_source(source).await.and_then(|text| MasterKey::parse(text.expose_secret())) {
                Ok(master) => Master::Named(master),
                Err(why) => Master::Unreadable(format!("the master key from {source} cannot be used: {why}")),
            }
        }
    };
    Terms { encrypt: policy.privacy.encrypt, master }
}

/// The terms of a ledger that nobody has put behind a key yet.
pub(crate) fn without_key(policy: &Policy) -> Terms {
    let unread = |source| Master::Unreadable(format!("the master key from {source} was not read"));
    Terms { encrypt: policy.privacy.encrypt, master: policy.privacy.key_from.as_ref().map_or(Master::Beside, unread) }
}
