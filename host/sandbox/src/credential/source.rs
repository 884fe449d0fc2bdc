//! Where secrets come from: the environment, a file, a program, a keyring of the system.
//!
//! Every buffer that is ours is wiped when it is dropped, and is as large as it will be from the start: a
//! buffer that grows leaves copies behind. What the system's own libraries keep is not in our hands.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

use super::keyring;
use crate::policy::CredentialSource;

/// Bytes of a secret; longer ones are a mistaken path.
pub(super) const SECRET_BYTES_MAX: usize = 16 << 10;
/// How long a command may take to print its secret, and a keyring to give it: somebody may have to unlock
/// it first, and a call does not wait longer.
pub(super) const WITHIN: Duration = Duration::from_secs(10);

/// Bytes that are wiped.
pub(super) type Wiped = Zeroizing<Vec<u8>>;

/// Reads the secret as it stands there, at most one byte more than is taken.
pub(super) async fn read(source: &CredentialSource) -> Result<Wiped, String> {
    match source {
        CredentialSource::Env(name) => variable(name),
        CredentialSource::File(path) => {
            let path = path.clone();
            off_the_threads("reading the file", move || file(&path).map_err(|error| error.to_string())).await
        }
        CredentialSource::Command(line) => command(line).await,
        CredentialSource::Keyring(entry) => {
            let entry = entry.clone();
            off_the_threads("the keyring", move || keyring::read(&entry)).await
        }
    }
}

/// An empty buffer that never grows.
fn buffer() -> Wiped {
    // One more than is read, so that the end is seen without room being made for more.
    Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX + 2))
}

fn variable(name: &str) -> Result<Wiped, String> {
    use std::os::unix::ffi::OsStringExt;
    let value = std::env::var_os(name).ok_or("the variable is not set")?;
    Ok(Zeroizing::new(value.into_vec()))
}

fn file(path: &Path) -> std::io::Result<Wiped> {
    let mut bytes = buffer();
    std::fs::File::open(path)?.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs the program without a shell; the policy's author is trusted, its values are words. What it writes
/// to standard error goes nowhere: it may say more than it should.
async fn command(line: &str) -> Result<Wiped, String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("the command is empty")?;
    let mut child = tokio::process::Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let stdout = child.stdout.take().ok_or("the command has no output")?;
    let run = async {
        let mut bytes = buffer();
        let mut stdout = stdout.take(SECRET_BYTES_MAX as u64 + 1);
        stdout.read_to_end(&mut bytes).await?;
        // Whoever writes more hears that nobody reads on.
        drop(stdout);
        std::io::Result::Ok((bytes, child.wait().await?))
    };
    let ended = tokio::time::timeout(WITHIN, run).await.map_err(|_| "the command did not end in time".to_owned())?;
    let (bytes, status) = ended.map_err(|error| error.to_string())?;
    if !status.success() && bytes.len() <= SECRET_BYTES_MAX {
        return Err(format!("the command ended with {status}"));
    }
    Ok(bytes)
}

/// On a thread of its own: what blocks there blocks nobody else, and is waited for as long as is allowed.
async fn off_the_threads(
    what: &str,
    work: impl FnOnce() -> Result<Wiped, String> + Send + 'static,
) -> Result<Wiped, String> {
    let (done, wait) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("secret".to_owned());
    // Whoever waited may have given up; the secret is then wiped with the message.
    thread.spawn(move || drop(done.send(work()))).map_err(|error| error.to_string())?;
    match tokio::time::timeout(WITHIN, wait).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("{what} failed")),
        Err(_) => Err(format!("{what} gave no answer within {} s", WITHIN.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn of(source: CredentialSource) -> Result<Vec<u8>, String> {
        read(&source).await.map(|bytes| bytes.to_vec())
    }

    #[tokio::test]
    async fn a_buffer_never_grows() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        std::fs::write(&large, vec![b'x'; SECRET_BYTES_MAX * 4]).unwrap();
        let bytes = file(&large).unwrap();
        assert_eq!((bytes.len(), bytes.capacity()), (SECRET_BYTES_MAX + 1, buffer().capacity()));
        let bytes = command(&format!("cat {}", large.display())).await.unwrap();
        assert_eq!((bytes.len(), bytes.capacity()), (SECRET_BYTES_MAX + 1, buffer().capacity()));
    }

    #[tokio::test]
    async fn each_source_gives_its_bytes_or_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("secret");
        std::fs::write(&place, "sk_1\n").unwrap();
        assert_eq!(of(CredentialSource::File(place.clone())).await.unwrap(), b"sk_1\n");
        assert_eq!(of(CredentialSource::Command(format!("cat {}", place.display()))).await.unwrap(), b"sk_1\n");
        assert!(of(CredentialSource::Env("ONCEGATE_NO_SUCH_VARIABLE".into())).await.unwrap_err().contains("not set"));
        assert!(of(CredentialSource::Command("false".into())).await.unwrap_err().contains("ended with"));
        assert!(of(CredentialSource::File("/nowhere/at/all".into())).await.is_err());
    }
}
