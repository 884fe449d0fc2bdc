//! The URL and the headers: values here can never change the request's shape.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use unicode_normalization::UnicodeNormalization;
use url::{Host, Url};

use super::{Member, text};
use crate::error::FieldError;
use crate::limits::LINE_VALUE_BYTES_MAX;
use crate::operation::Operation;
use crate::place::{PathPiece, Place};

/// All but the unreserved characters of RFC 3986 is encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How often a value is decoded when it is searched for dot segments: sloppy proxies decode twice.
const DECODINGS: usize = 3;

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Whether the text is an endpoint's URL: http or https, a host, perhaps a path, each as it is used.
///
/// # Errors
/// A text that tells what is wrong. Whatever another reader could take for another place is refused:
/// users, backslashes, percent signs, dot segments, and hosts in any other than their usual form.
pub fn check_base_url(text: &str) -> Result<(), String> {
    base(text).map(|_| ())
}

/// The base without a slash at its end.
fn base(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|e| format!("not a URL: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the URL is neither http nor https".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the URL has no host".into());
    }
    if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        return Err("the URL has a user or password; credentials come from policy".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL has a query or fragment".into());
    }
    let path = url.path();
    let odd = text.contains('%') || path.contains("//");
    if odd || text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') || text.contains("/.") {
        return Err("the URL has white space, percent signs, backslashes, dot or empty segments".into());
    }
    if matches!(url.host(), Some(Host::Domain(name)) if name.ends_with('.')) {
        return Err("the host ends with a dot; leave it out".into());
    }
    if url.port() == Some(0) {
        return Err("port 0 is no port".into());
    }
    let base = url.as_str().trim_end_matches('/').to_owned();
    if as_read(text, &url) { Ok(base) } else { Err(format!("the URL would be read as {base}; write it like that")) }
}

/// Whether the URL says what it is read as: no numbers for addresses, no other alphabet for names, no
/// characters that a parser drops. Letters of scheme and host may be large; a scheme's own port may be there.
fn as_read(text: &str, url: &Url) -> bool {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    let own_port = if url.scheme() == "https" { ":443" } else { ":80" };
    let authority = authority.strip_suffix(own_port).filter(|_| url.port().is_none()).unwrap_or(&authority);
    let written = format!("{}://{authority}{path}", scheme.to_ascii_lowercase());
    written.trim_end_matches('/') == url.as_str().trim_end_matches('/')
}

pub(super) fn url(operation: &Operation, base_url: &str, members: &[Member<'_>]) -> Result<String, FieldError> {
    let base = base(base_url).map_err(|message| FieldError::invalid("url", message))?;
    let mut url = base;
    for segment in &operation.path.segments {
        url.push('/');
        url.push_str(&path_segment(segment, members)?);
    }
    let constants = operation.path.query.iter().map(|(name, value)| Ok(format!("{}={value}", encode(name))));
    let declared = members.iter().filter_map(|member| match member.place {
        Place::Query(name) => Some(query_member(name, member)),
        _ => None,
    });
    let query = constants.chain(declared).collect::<Result<Vec<_>, FieldError>>()?.join("&");
    if !query.is_empty() {
        url.push('?');
        url.push_str(&query);
    }
    unchanged(&url)?;
    Ok(url)
}

/// A second pair of eyes: an independent parser must read back exactly what was written.
fn unchanged(url: &str) -> Result<(), FieldError> {
    match Url::parse(url) {
        Ok(parsed) if parsed.as_str() == url && parsed.fragment().is_none() => Ok(()),
        _ => Err(FieldError::invalid("url", "a value would change the shape of the URL")),
    }
}

fn query_member(name: &str, member: &Member<'_>) -> Result<String, FieldError> {
    let value = text(member.value);
    short(name, &value)?;
    Ok(format!("{}={}", encode(name), encode(&value)))
}

fn short(name: &str, value: &str) -> Result<(), FieldError> {
    if value.len() > LINE_VALUE_BYTES_MAX {
        return Err(FieldError::invalid(name, format!("longer than {LINE_VALUE_BYTES_MAX} bytes")));
    }
    if value.chars().any(char::is_control) {
        return Err(FieldError::invalid(name, "control characters have no place in a URL or header"));
    }
    Ok(())
}

fn path_segment(pieces: &[PathPiece], members: &[Member<'_>]) -> Result<String, FieldError> {
    let mut segment = String::new();
    let mut last_name = "path";
    for piece in pieces {
        match piece {
            PathPiece::Fixed(fixed) => segment.push_str(fixed),
            PathPiece::Placeholder(name) => {
                let place = Place::Path(name.clone());
                let member = members.iter().find(|m| *m.place == place);
                let member = member.ok_or_else(|| FieldError::invalid(name, "the path needs a value"))?;
                let value = text(member.value);
                path_value(name, &value)?;
                segment.push_str(&encode(&value));
                last_name = name;
            }
        }
    }
    if segment == "." || segment == ".." {
        return Err(FieldError::invalid(last_name, "the path would have a dot segment"));
    }
    Ok(segment)
}

/// What ends a segment or a path for one reader or another. Encoded they are text, but proxies decode what
/// they pass on, and then `1/cancel` names another place and `R-1;x` the same one as `R-1`.
const PATH_SIGNS: [char; 5] = ['/', '\\', '?', '#', ';'];

/// No reading of the value, encoded or decoded, wide or narrow, is anything but one segment.
fn path_value(name: &str, value: &str) -> Result<(), FieldError> {
    short(name, value)?;
    let mut reading = value.to_owned();
    for _ in 0..DECODINGS {
        let plain: String = reading.nfkc().collect();
        if matches!(plain.trim(), "" | "." | "..") {
            return Err(FieldError::invalid(name, "empty, \".\" and \"..\" are no path values"));
        }
        if plain.contains(PATH_SIGNS) {
            return Err(FieldError::invalid(name, "a path value has no \"/\", \"\\\", \"?\", \"#\" or \";\""));
        }
        if plain.chars().any(char::is_control) {
            return Err(FieldError::invalid(name, "control characters have no place in a URL or header"));
        }
        reading = percent_decode_str(&plain).decode_utf8_lossy().into_owned();
    }
    Ok(())
}

pub(super) fn headers(members: &[Member<'_>]) -> Result<Vec<(String, String)>, FieldError> {
    let mut headers = Vec::new();
    for member in members {
        let Place::Header(name) = member.place else {
            continue;
        };
        let value = text(member.value);
        short(name, &value)?;
        let visible = value.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !visible || value.trim() != value || value.is_empty() {
            let message = "a header value is visible ASCII text, not empty, without spaces at its ends";
            return Err(FieldError::invalid(name, message));
        }
        headers.push((name.clone(), value));
    }
    Ok(headers)
}
