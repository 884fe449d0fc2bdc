//! Secrets: read from where the policy says, attached last, kept nowhere.

mod forms;

use std::path::Path;

use http::HeaderValue;
use oncegate_contract::Answer;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;

use crate::http::joined;
use crate::policy::{CredentialSource, CredentialUse};
use forms::Forms;

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

    fn forms(&self) -> Forms {
        Forms::of(self.bytes())
    }

    /// Takes the secret out of an answer that a guest may see, in every form and in place: lengths stay.
    pub(crate) fn scrub(&self, answer: &mut Answer) {
        let forms = self.forms();
        let values = answer.headers.iter_mut().map(|(_, value)| value);
        for part in values.chain([&mut answer.body]) {
            *part = forms.scrub(std::mem::take(part));
        }
    }

    /// Whether these bytes give the secret away, in whatever form.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms().are_in(bytes)
    }

    /// Whether an answer does: as its bytes came, and with its chunks put together.
    pub(crate) fn is_in_answer(&self, raw: &[u8]) -> bool {
        let forms = self.forms();
        forms.are_in(raw) || joined(raw).is_some_and(|body| forms.are_in(&body))
    }
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
