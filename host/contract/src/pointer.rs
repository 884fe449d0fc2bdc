//! JSON pointers (RFC 6901) with `*` for "any element of this array".

use std::fmt;

use serde_json::Value as Json;

use crate::limits::{POINTER_BYTES_MAX, POINTER_SEGMENTS_MAX};

/// One step of a pointer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// A member of an object, or an index of an array.
    Name(String),
    /// Any element of an array; at most one in a pointer.
    Any,
}

/// A parsed JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    segments: Vec<Segment>,
}

impl Pointer {
    /// Parses `/a/b`, `/a/*/b` or the empty text (the whole document).
    ///
    /// # Errors
    /// A text that tells what is wrong: no leading slash, too long, too deep, a bad `~` escape or
    /// more than one `*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > POINTER_BYTES_MAX {
            return Err(format!("the pointer is longer than {POINTER_BYTES_MAX} bytes"));
        }
        if text.is_empty() {
            return Ok(Self { segments: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("a JSON pointer begins with \"/\", as in \"/{text}\""));
        };
        let segments = rest.split('/').map(segment).collect::<Result<Vec<_>, _>>()?;
        if segments.len() > POINTER_SEGMENTS_MAX {
            return Err(format!("the pointer is deeper than {POINTER_SEGMENTS_MAX} steps"));
        }
        if segments.iter().filter(|s| **s == Segment::Any).count() > 1 {
            return Err("a pointer may have one \"*\" only".into());
        }
        Ok(Self { segments })
    }

    /// A pointer made of plain names.
    pub(crate) fn of_names(names: Vec<String>) -> Self {
        Self { segments: names.into_iter().map(Segment::Name).collect() }
    }

    /// The steps.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether the pointer has a `*`.
    pub fn has_any(&self) -> bool {
        self.segments.contains(&Segment::Any)
    }

    /// Splits at the `*`: the pointer to the array, and the one inside an element.
    pub(crate) fn split_any(&self) -> Option<(Pointer, Pointer)> {
        let at = self.segments.iter().position(|s| *s == Segment::Any)?;
        let (before, after) = (self.segments.get(..at)?, self.segments.get(at + 1..)?);
        Some((Self { segments: before.to_vec() }, Self { segments: after.to_vec() }))
    }

    /// The value a pointer without `*` names; null counts as absent.
    pub fn get<'a>(&self, document: &'a Json) -> Option<&'a Json> {
        let mut at = document;
        for step in &self.segments {
            let Segment::Name(name) = step else {
                return None;
            };
            at = match at {
                Json::Object(members) => members.get(name)?,
                Json::Array(elements) => elements.get(index(name)?)?,
                _ => return None,
            };
        }
        (!at.is_null()).then_some(at)
    }
}

/// Array indexes have one spelling, so that two pointers never name one place.
fn index(name: &str) -> Option<usize> {
    let plain = name == "0" || !name.starts_with('0');
    let digits = name.len() <= 6 && name.bytes().all(|b| b.is_ascii_digit());
    (plain && digits).then(|| name.parse().ok()).flatten()
}

fn segment(text: &str) -> Result<Segment, String> {
    if text == "*" {
        return Ok(Segment::Any);
    }
    if text.chars().any(char::is_control) {
        return Err("a pointer has no control characters".into());
    }
    let mut name = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '~' {
            name.push(c);
            continue;
        }
        match chars.next() {
            Some('0') => name.push('~'),
            Some('1') => name.push('/'),
            _ => {
                return Err("in a pointer \"~\" is written \"~0\" and \"/\" is written \"~1\"".into());
            }
        }
    }
    Ok(Segment::Name(name))
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.segments {
            match step {
                Segment::Any => f.write_str("/*")?,
                Segment::Name(name) => {
                    write!(f, "/{}", name.replace('~', "~0").replace('/', "~1"))?;
                }
            }
        }
        Ok(())
    }
}
