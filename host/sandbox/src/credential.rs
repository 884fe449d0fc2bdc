//! Secrets: read from where the policy says, attached last, kept nowhere.

use std::path::Path;

use http::HeaderValue;
use memchr::memmem;
use oncegate_contract::Answer;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;

use crate::policy::{Attach, CredentialSource, CredentialUse};

/// Bytes of a secret; longer ones are a mistaken path.
const SECRET_BYTES_MAX: usize = 16 << 10;
/// How long a command may take to print its secret.
const COMMAND_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// A credential cannot be used. No message contains the secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The source gives nothing.
    #[error("the credential {name} cannot be read from {from}: {why}")]
    Unreadable {
        /// Name in the policy.
        name: String,
        /// Its source, as in the policy.
        from: String,
        /// What is wrong.
        why: String,
    },
    /// The secret cannot be put where the policy says.
    #[error("the credential {name} cannot be attached: {why}")]
    Attach {
        /// Name in the policy.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
}

/// Whether the secret can be read and attached now; it is forgotten at once.
///
/// # Errors
/// [`CredentialError`], which never shows the secret.
pub async fn probe_credential(usage: &CredentialUse) -> Result<(), CredentialError> {
    Credential::read(usage).await?.header().map(drop)
}

/// An answer as a guest is given it: without this secret, wherever the host looks for one.
#[must_use]
pub fn without_secret(mut answer: Answer, secret: &str) -> Answer {
    let (source, attach) = (CredentialSource::Env(String::new()), Attach::Header("authorization".to_owned()));
    let usage = CredentialUse { name: String::new(), source, attach, format: "{secret}".to_owned() };
    Credential { secret: SecretString::from(secret.to_owned()), usage }.scrub(&mut answer);
    answer
}

/// A secret that was read, and how it is attached.
pub(crate) struct Credential {
    secret: SecretString,
    usage: CredentialUse,
}

impl Credential {
    /// Reads the secret.
    pub(crate) async fn read(usage: &CredentialUse) -> Result<Self, CredentialError> {
        let fail =
            |why: String| CredentialError::Unreadable { name: usage.name.clone(), from: usage.source.to_string(), why };
        let text = read(&usage.source).await.map_err(fail)?;
        let text = text.trim_end_matches(['\r', '\n']);
        match text.len() {
            0 => Err(fail("it is empty".to_owned())),
            bytes if bytes > SECRET_BYTES_MAX => Err(fail("it is longer than a secret is".to_owned())),
            _ => Ok(Self { secret: SecretString::from(text.to_owned()), usage: usage.clone() }),
        }
    }

    /// The header to send; marked sensitive, so that no debug output shows it.
    pub(crate) fn header(&self) -> Result<(String, HeaderValue), CredentialError> {
        let fail = |why| CredentialError::Attach { name: self.usage.name.clone(), why };
        let name = self.usage.header();
        let text = self.usage.format.replace("{secret}", self.secret.expose_secret());
        let mut value =
            HeaderValue::from_str(&text).map_err(|_| fail("it holds characters that a header cannot carry"))?;
        value.set_sensitive(true);
        Ok((name.to_owned(), value))
    }

    /// The secret's bytes, for its version and for scrubbing.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.secret.expose_secret().as_bytes()
    }

    /// Takes the secret out of bytes, in place: framing and offsets stay as they are.
    pub(crate) fn scrub_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        scrub(bytes, self.bytes())
    }

    /// Takes the secret out of an answer that a guest may see.
    pub(crate) fn scrub(&self, answer: &mut Answer) {
        let secret = self.bytes();
        answer.body = scrub(std::mem::take(&mut answer.body), secret);
        for (_, value) in &mut answer.headers {
            *value = scrub(std::mem::take(value), secret);
        }
    }

    /// Whether these bytes give the secret away.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        memmem::find(bytes, self.bytes()).is_some()
    }
}

fn scrub(bytes: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    // One that is in the secret could make the secret anew, of what stood before it.
    let filler = (b'*'..=b'~').find(|byte| !secret.contains(byte)).unwrap_or(b'*');
    let mut clean = bytes;
    let mut from = 0;
    while let Some(at) = memmem::find(&clean[from..], secret).filter(|_| !secret.is_empty()) {
        let found = from + at..from + at + secret.len();
        from = found.end;
        clean[found].fill(filler);
    }
    clean
}

async fn read(source: &CredentialSource) -> Result<String, String> {
    match source {
        CredentialSource::Env(name) => std::env::var(name).map_err(|_| "the variable is not set".to_owned()),
        CredentialSource::File(path) => read_file(path).await.map_err(|error| error.to_string()),
        CredentialSource::Command(line) => run(line).await,
    }
}

async fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_string(&mut text).await?;
    Ok(text)
}

/// Runs the program without a shell; the policy's author is trusted, its values are words.
async fn run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("the command is empty")?;
    let child = tokio::process::Command::new(program).args(words).kill_on_drop(true).output();
    let output = tokio::time::timeout(COMMAND_WITHIN, child)
        .await
        .map_err(|_| "the command did not end in time".to_owned())?
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("the command ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| "the command printed no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_scrubbed_wherever_it_stands() {
        assert_eq!(scrub(b"a sk_1 b sk_1".to_vec(), b"sk_1"), b"a **** b ****");
        assert_eq!(scrub(b"nothing".to_vec(), b"sk_1"), b"nothing");
        assert_eq!(scrub(b"x".to_vec(), b""), b"x");
        assert_eq!(scrub(b"abab**".to_vec(), b"ab**"), b"ab++++", "what is written over it does not make it anew");
    }
}
