//! `oncegate keygen`, `sign` and `verify`: minisign keys and signatures of components.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minisign::{KeyPair, PublicKeyBox, SecretKey, SecretKeyBox};
use oncegate_sandbox::describe::Description;
use oncegate_sandbox::policy::Revocable;
use oncegate_sandbox::read;
use oncegate_sandbox::signature::{self, PublicKey, Standing};
use serde_json::json;

use super::signed;
use crate::args::sign::{Keygen, Password, Sign, Verify};
use crate::exit::{Exit, usage};
use crate::home::{self, Home};
use crate::print::{self, Tone, clean};

/// Bytes of a key's file: two lines.
const KEY_BYTES_MAX: u64 = 4 << 10;
/// Where automation has the password.
const PASSWORD_VARIABLE: &str = "ONCEGATE_KEY_PASSWORD";
/// The kind of a key's protection, in its second line: none, and not a password.
const NO_PASSWORD: [u8; 2] = [0, 0];

pub(crate) fn keygen(home: &Home, args: &Keygen) -> anyhow::Result<Exit> {
    let public = PathBuf::from(format!("{}.pub", args.output.display()));
    for file in [&args.output, &public] {
        ensure!(!file.exists(), "{} is there already and is kept; choose another name with -o", file.display());
    }
    let pair = if args.no_password {
        KeyPair::generate_unencrypted_keypair()
    } else {
        KeyPair::generate_encrypted_keypair(password(&args.password, home)?)
    };
    let pair = pair.context("the key pair cannot be made")?;
    let secret = pair.sk.to_box(Some("secret key for `oncegate sign`"))?.into_string();
    write_new(&args.output, secret.as_bytes(), 0o600)?;
    write_new(&public, pair.pk.to_box()?.to_string().as_bytes(), 0o644)?;
    let line = pair.pk.to_base64();
    if home.json() {
        let made =
            json!({ "secret": args.output.display().to_string(), "public": public.display().to_string(), "key": line });
        print::out(&print::json(&made, true)?)?;
    } else {
        print::out(&format!(
            "{} is secret, {} is for those who verify. In a policy:\n\n[signer.NAME]\nkey = \"{line}\"\n",
            clean(&args.output.display().to_string()),
            clean(&public.display().to_string()),
        ))?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn sign(home: &Home, args: &Sign) -> anyhow::Result<Exit> {
    let bytes = read(&args.component)?;
    let loads = || format!("{} would not load, so it is not signed", args.component.display());
    let description = Description::read(&bytes).with_context(loads)?;
    let secret = secret_key(home, &args.key, &args.password)?;
    let name = args.component.file_name().unwrap_or_default().to_string_lossy();
    let comment = signature::comment(&description.digest, &description.name, &name, home::now_ms() / 1_000);
    let public = minisign::PublicKey::from_secret_key(&secret)?;
    let signed =
        minisign::sign(Some(&public), &secret, &bytes[..], Some(&comment), Some("signature from `oncegate sign`"))?;
    let output = args.output.clone().unwrap_or_else(|| signature::beside(&args.component));
    replace(&output, signed.into_string().as_bytes())?;
    if home.json() {
        let made = json!({ "signature": output.display().to_string(), "digest": description.digest_text(), "comment": comment });
        print::out(&print::json(&made, true)?)?;
    } else {
        print::out(&format!("{}: {}\n", clean(&output.display().to_string()), description.digest_text()))?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn verify(home: &Home, args: &Verify) -> anyhow::Result<Exit> {
    let bytes = read(&args.component)?;
    let description = Description::read(&bytes)
        .with_context(|| format!("the component {} would not load", args.component.display()))?;
    let policy = home.policy()?;
    let standing = match &args.key {
        Some(key) => {
            let key = public_key(key)?;
            signature::judge(&args.component, &bytes, (&description.digest, &description.name), [&key].into_iter())
        }
        None if policy.signers.is_empty() => {
            return Err(usage("the policy has no [signer.NAME]; give the key with --key"));
        }
        None => signed::read_beside(&policy, &args.component, &description)?,
    };
    let counts = match &standing {
        Standing::Verified { key, .. } => {
            args.key.is_some() || matches!(policy.signer_of(key), Some((_, Revocable::Counts)))
        }
        Standing::Refused(_) => false,
    };
    let words = match &standing {
        Standing::Refused(problem) => clean(&problem.to_string()),
        Standing::Verified { .. } => signed::words(&policy, &standing),
    };
    if home.json() {
        let mut said = signed::machine(&policy, &standing);
        said["digest"] = description.digest_text().into();
        said["ok"] = counts.into();
        print::out(&print::json(&said, true)?)?;
    } else {
        let mark = if counts { Tone::Good.paint("signed") } else { Tone::Bad.paint("refused") };
        print::out(&format!("{mark}: {} {words}\n", clean(&description.name)))?;
    }
    Ok(if counts { Exit::Ok } else { Exit::Refused })
}

/// A public key as a policy has it, or the file that it is in.
fn public_key(text: &str) -> anyhow::Result<PublicKey> {
    if let Some(key) = PublicKey::parse(text) {
        return Ok(key);
    }
    let file = home::read_text(Path::new(text), "the public key", KEY_BYTES_MAX)?;
    PublicKey::parse(&file).with_context(|| format!("{text} has no minisign public key"))
}

fn secret_key(home: &Home, path: &Path, given: &Password) -> anyhow::Result<SecretKey> {
    let text = home::read_text(path, "the secret key", KEY_BYTES_MAX)?;
    let file = path.display();
    if text.parse::<Public>().is_ok() {
        bail!("{file} is a public key; the secret one signs");
    }
    let no_key = || format!("{file} is no minisign secret key");
    let bytes = key_bytes(&text).with_context(no_key)?;
    let key = if bytes.get(2..4) == Some(&NO_PASSWORD) {
        // Not through its checksum: minisign writes none for such a key. What is signed is checked instead.
        SecretKey::from_bytes(&bytes)
    } else {
        let boxed = SecretKeyBox::from_string(&text).with_context(no_key)?;
        boxed.into_secret_key(password(given, home)?)
    };
    key.with_context(|| format!("the secret key {file} cannot be used"))
}

/// Only to tell a public key from a secret one.
struct Public;

impl std::str::FromStr for Public {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let boxed = PublicKeyBox::from_string(text).map_err(drop)?;
        boxed.into_public_key().map(|_| Self).map_err(drop)
    }
}

/// The bytes in the second line of a key's file.
fn key_bytes(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text.lines().nth(1)?.trim()).ok()
}

/// The password, or none where a person is asked for it.
fn password(given: &Password, home: &Home) -> anyhow::Result<Option<String>> {
    if let Some(file) = &given.password_file {
        let text = home::read_text(file, "the password", KEY_BYTES_MAX)?;
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(Some(password));
    }
    if !std::io::stdin().is_terminal() || home.json() {
        return Err(usage(format!(
            "the key's password is asked for on a terminal; without one give --password-file FILE or {PASSWORD_VARIABLE}"
        )));
    }
    Ok(None)
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = file.with_context(|| format!("{} cannot be written", path.display()))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// A signature is replaced whole: half of one would refuse a component that is in use.
fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let temporary = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    write_new(&temporary, bytes, 0o644)?;
    std::fs::rename(&temporary, path).with_context(|| format!("{} cannot be written", path.display()))
}
