//! Secrets from the system's keyrings: the kernel's key retention service, and the Secret Service of a
//! desktop over D-Bus.
//!
//! An entry without a named keyring is asked of the kernel first, which answers at once and needs no
//! other program, and of the Secret Service only where the kernel has none. Blocks: called on a thread of
//! its own.

use std::sync::Arc;

use keyring_core::{CredentialStore, Entry, Error};
use zeroize::Zeroizing;

use super::source::Wiped;
use crate::policy::{Keyring, KeyringStore};

/// Reads the entry. No message has anything of a secret in it.
pub(super) fn read(entry: &Keyring) -> Result<Wiped, String> {
    match entry.store {
        KeyringStore::Kernel => kernel(entry),
        KeyringStore::SecretService => secret_service(entry),
        KeyringStore::Any => {
            kernel(entry).or_else(|kernel| secret_service(entry).map_err(|service| format!("{kernel}; and {service}")))
        }
    }
}

fn kernel(entry: &Keyring) -> Result<Wiped, String> {
    let Keyring { service, account, .. } = entry;
    let store = linux_keyutils_keyring_store::Store::new();
    let store: Result<Arc<CredentialStore>, Error> = store.map(|store| store as Arc<CredentialStore>);
    get(store, entry).map_err(|error| match error {
        Error::NoEntry => format!(
            "the kernel's keyring of this session has no user key `keyring:{account}@{service}` (keyctl padd user 'keyring:{account}@{service}' @s makes one)"
        ),
        error => format!("the kernel's keyring cannot be used ({})", said(&error)),
    })
}

fn secret_service(entry: &Keyring) -> Result<Wiped, String> {
    let Keyring { service, account, .. } = entry;
    let store = zbus_secret_service_keyring_store::Store::new();
    let store: Result<Arc<CredentialStore>, Error> = store.map(|store| store as Arc<CredentialStore>);
    get(store, entry).map_err(|error| match error {
        Error::NoEntry => format!(
            "the Secret Service has no entry with service {service:?} and username {account:?} (secret-tool store --label={service} service {service} username {account} makes one)"
        ),
        Error::Ambiguous(all) => format!(
            "the Secret Service has {} entries with service {service:?} and username {account:?}; keep one",
            all.len()
        ),
        Error::NoStorageAccess(_) => "the Secret Service keeps the entry locked; unlock its collection".to_owned(),
        error => format!(
            "the Secret Service cannot be used ({}); it runs in a desktop's session, with DBUS_SESSION_BUS_ADDRESS set",
            said(&error)
        ),
    })
}

fn get(store: Result<Arc<CredentialStore>, Error>, entry: &Keyring) -> Result<Wiped, Error> {
    let entry = Entry::new_in_store(&store?, &entry.service, &entry.account)?;
    entry.get_secret().map(Zeroizing::new)
}

/// An error's words, without the bytes that some carry.
fn said(error: &Error) -> String {
    match error {
        Error::BadDataFormat(..) | Error::BadEncoding(_) => "the entry is no text".to_owned(),
        other => other.to_string(),
    }
}
