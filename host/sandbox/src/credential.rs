//! Secrets: read from where the policy says, attached last, kept nowhere.

pub(crate) mod forms;
mod keyring;
mod source;

use bytes::Bytes;
use http::HeaderValue;
use oncegate_contract::Answer;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::http::joined;
use crate::policy::{Attach, CredentialSource, CredentialUse};
use forms::Forms;
use source::SECRET_BYTES_MAX;

/// Where the secret stands in the text that is sent.
const PLACE: &str = "{secret}";

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
    let credential = Credential::read(usage).await?;
    if usage.header().is_none() {
        return Ok(());
    }
    credential.header().map(drop)
}

/// Reads a secret from a source that is written as in a policy (`env:NAME`, `file:/path`, `command:…`,
/// `keyring:SERVICE/ACCOUNT`), for what is no provider.
///
/// # Errors
/// Why not, without the secret.
pub async fn read_secret(from: &str) -> Result<SecretString, String> {
    read_source(&crate::policy::source_of(from)?).await
}

/// Reads what a source gives as one text.
pub(crate) async fn read_source(source: &CredentialSource) -> Result<SecretString, String> {
    let bytes = source::read(source).await.map_err(|why| format!("{source} cannot be read: {why}"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{source} gives no text"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{source} gives nothing")),
        text => Ok(SecretString::new(Box::from(text))),
    }
}

/// An answer as a guest is given it: without this secret, wherever the host looks for one.
#[must_use]
pub fn without_secret(mut answer: Answer, secret: &str) -> Answer {
    let (source, attach) = (CredentialSource::Env(String::new()), Attach::Header("authorization".to_owned()));
    let usage = CredentialUse { name: String::new(), source, attach, format: PLACE.to_owned() };
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
        let bytes = source::read(&usage.source).await.map_err(fail)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| fail("it is no text".to_owned()))?;
        let text = text.trim_end_matches(['\r', '\n']);
        match text.len() {
            0 => Err(fail("it is empty".to_owned())),
            bytes if bytes > SECRET_BYTES_MAX => Err(fail("it is longer than a secret is".to_owned())),
            // A box of exactly that size: nothing is moved, and no copy stays behind.
            _ => Ok(Self { secret: SecretString::new(Box::from(text)), usage: usage.clone() }),
        }
    }

    /// The header to send; marked sensitive, so that no debug output shows it.
    pub(crate) fn header(&self) -> Result<(String, HeaderValue), CredentialError> {
        let fail = |why| CredentialError::Attach { name: self.usage.name.clone(), why };
        let name = self.usage.header().ok_or_else(|| fail("it is the password of a database"))?;
        let text = self.text().ok_or_else(|| fail("its format has no place for it"))?;
        // The value shares these bytes, which are wiped with the last that has them.
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(text))
            .map_err(|_| fail("it holds characters that a header cannot carry"))?;
        value.set_sensitive(true);
        Ok((name.to_owned(), value))
    }

    /// The text that a database takes for a password.
    pub(crate) fn password(&self) -> SecretString {
        // Without a place for it nobody is logged in.
        let text = self.text().unwrap_or_default();
        SecretString::new(Box::from(text.as_str()))
    }

    /// What is sent: the format with the secret in its place, which a policy's format has once. Wiped, and of its size
    /// from the start.
    fn text(&self) -> Option<Zeroizing<String>> {
        let (before, after) = self.usage.format.split_once(PLACE)?;
        let parts = [before, self.secret.expose_secret(), after];
        let mut text = Zeroizing::new(String::with_capacity(parts.iter().map(|part| part.len()).sum()));
        parts.iter().for_each(|part| text.push_str(part));
        Some(text)
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

    /// The same of bytes that are no HTTP answer.
    pub(crate) fn scrub_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.forms().scrub(bytes)
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
