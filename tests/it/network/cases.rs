//! The files under `tests/cases/hostile`: some words on what is attacked and what must happen, `key = value`
//! lines, and behind `---` what is sent or written, with escapes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

/// One attack.
#[derive(Debug)]
pub(super) struct Case {
    /// The file's name without its end.
    pub(super) name: String,
    keys: BTreeMap<String, String>,
    /// What stands behind each `---`.
    sections: Vec<String>,
}

impl Case {
    /// All of a folder, in the order of their names.
    pub(super) fn all(folder: &str) -> Vec<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases/hostile").join(folder);
        let mut found: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        assert!(!found.is_empty(), "{} is empty", folder.display());
        found
            .iter()
            .map(|path| Self::read(path.file_stem().unwrap().to_str().unwrap(), &fs::read_to_string(path).unwrap()))
            .collect()
    }

    fn read(name: &str, text: &str) -> Self {
        let mut parts = text.split("\n---\n");
        let head = parts.next().unwrap();
        let words = head.lines().filter(|line| line.starts_with("# ")).count();
        assert!(words >= 2, "{name}: say what it attacks and what must happen");
        let lines = head.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let pair = |line: &str| {
            let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{name}: {line}"));
            (key.to_owned(), value.to_owned())
        };
        Self { name: name.to_owned(), keys: lines.map(pair).collect(), sections: parts.map(str::to_owned).collect() }
    }

    /// A value of the head.
    #[track_caller]
    pub(super) fn key(&self, key: &str) -> &str {
        self.keys.get(key).unwrap_or_else(|| panic!("{}: no {key}", self.name))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// The one section's text, escapes read.
    pub(super) fn text(&self) -> String {
        let steps = steps(self.section(0), &Filled::default());
        let [Step::Send(bytes)] = &steps[..] else { panic!("{}: {steps:?}", self.name) };
        String::from_utf8(bytes.clone()).unwrap()
    }

    /// The section that is played to the request of that number; the last one to all that follow.
    pub(super) fn section(&self, number: usize) -> &str {
        self.sections.get(number).or(self.sections.last()).unwrap_or_else(|| panic!("{}: no ---", self.name))
    }
}

/// What is done with a connection, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Send(Vec<u8>),
    /// Milliseconds of nothing.
    Wait(u64),
    /// One byte in so many milliseconds.
    Drip(u64, Vec<u8>),
    Reset,
}

/// What stands for the words in braces.
#[derive(Debug, Default, Clone)]
pub(super) struct Filled {
    pub(super) words: BTreeMap<&'static str, String>,
}

impl Filled {
    /// With the body of a right answer, its length, and a secret in many forms.
    pub(super) fn with(body: &str, secret: &str) -> Self {
        let all = |write: fn(u8) -> String| secret.bytes().map(write).collect::<String>();
        let (first, second) = secret.split_at(secret.len() / 2);
        let words = [
            ("object", body.to_owned()),
            ("length", body.len().to_string()),
            ("hex", format!("{:x}", body.len())),
            ("secret", secret.to_owned()),
            ("secret-hex", all(|byte| format!("{byte:02x}"))),
            ("secret-percent", all(|byte| format!("%{byte:02X}"))),
            ("secret-json", all(|byte| format!("\\u{byte:04x}"))),
            ("secret-html", all(|byte| format!("&#{byte};"))),
            ("secret-reversed", secret.chars().rev().collect()),
            ("secret-base64", BASE64_STANDARD.encode(secret)),
            ("secret-basic", BASE64_STANDARD.encode(format!("user:{secret}"))),
            ("secret-base64url", BASE64_URL_SAFE_NO_PAD.encode(format!("k={secret}&x"))),
            ("half-first", format!("{:x}", first.len())),
            ("half-second", format!("{:x}", second.len())),
            ("secret-first", first.to_owned()),
            ("secret-second", second.to_owned()),
        ];
        Self { words: words.into() }
    }
}

/// Reads a section: ends of lines are nothing, escapes and words in braces are what they stand for.
pub(super) fn steps(section: &str, filled: &Filled) -> Vec<Step> {
    let text: String = section.lines().collect();
    let (mut steps, mut rest) = (vec![Step::Send(Vec::new())], text.as_str());
    while let Some(sign) = rest.chars().next() {
        let taken = match sign {
            '\\' => escape(rest, &mut steps),
            '{' if rest[1..].starts_with(|next: char| next.is_ascii_lowercase()) => word(rest, filled, &mut steps),
            _ => {
                push(&mut steps, sign.to_string().as_bytes());
                sign.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    steps.retain(|step| *step != Step::Send(Vec::new()));
    steps
}

fn push(steps: &mut Vec<Step>, bytes: &[u8]) {
    match steps.last_mut() {
        Some(Step::Send(sent)) => sent.extend_from_slice(bytes),
        _ => steps.push(Step::Send(bytes.to_vec())),
    }
}

fn escape(rest: &str, steps: &mut Vec<Step>) -> usize {
    let (byte, taken) = match rest.as_bytes()[1] {
        b'r' => (b'\r', 2),
        b'n' => (b'\n', 2),
        b't' => (b'\t', 2),
        b'0' => (0, 2),
        b'x' => (u8::from_str_radix(&rest[2..4], 16).unwrap(), 4),
        other => (other, 2),
    };
    push(steps, &[byte]);
    taken
}

/// `{object}`, `{wait:MS}`, `{repeat:N:TEXT}`, `{drip:MS:TEXT}`; texts have escapes and no braces.
fn word(rest: &str, filled: &Filled, steps: &mut Vec<Step>) -> usize {
    let end = rest.find('}').unwrap();
    let inner = &rest[1..end];
    let parts: Vec<&str> = inner.splitn(3, ':').collect();
    let plain = |text: &str| match &self::steps(text, filled)[..] {
        [Step::Send(bytes)] => bytes.clone(),
        other => panic!("{text}: {other:?}"),
    };
    match parts[..] {
        ["wait", ms] => steps.push(Step::Wait(ms.parse().unwrap())),
        ["reset"] => steps.push(Step::Reset),
        ["bomb"] => push(steps, bomb()),
        ["bomb-length"] => push(steps, bomb().len().to_string().as_bytes()),
        ["repeat", times, text] => push(steps, &plain(text).repeat(times.parse().unwrap())),
        ["drip", ms, text] => steps.push(Step::Drip(ms.parse().unwrap(), plain(text))),
        [word] => push(steps, filled.words.get(word).unwrap_or_else(|| panic!("what is {{{word}}}?")).as_bytes()),
        _ => panic!("what is {{{inner}}}?"),
    }
    end + 1
}

/// A megabyte of gzip that becomes a gigabyte: one member for 64 MiB, sixteen times.
fn bomb() -> &'static [u8] {
    static BOMB: OnceLock<Vec<u8>> = OnceLock::new();
    BOMB.get_or_init(|| {
        let script = "import gzip, sys; sys.stdout.buffer.write(gzip.compress(bytes(64 << 20), 6) * 16)";
        let made = Command::new("python3").args(["-c", script]).output().unwrap();
        assert!(made.status.success() && made.stdout.len() < 2 << 20, "{} bytes", made.stdout.len());
        made.stdout
    })
}

#[test]
fn a_section_is_read_as_it_is_meant() {
    let filled = Filled::with("{\"a\":1}", "sk");
    let read = steps("HTTP\\r\\n\n{object}\\x00{repeat:3:ab}{wait:5}\\n{drip:2:x\\ny}{reset}\n", &filled);
    let drip = Step::Drip(2, b"x\ny".to_vec());
    let sent = Step::Send(b"HTTP\r\n{\"a\":1}\0ababab".to_vec());
    assert_eq!(read, [sent, Step::Wait(5), Step::Send(b"\n".to_vec()), drip, Step::Reset]);
}
