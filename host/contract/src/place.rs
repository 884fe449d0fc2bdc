//! Where in a request a value is written, and which places are never a field's.

use std::fmt;

use crate::limits::PLACE_BYTES_MAX;
use crate::pointer::{Pointer, Segment};

/// One place of a request: `path:x`, `query:x`, `header:x`, `form:x`, `json:/a/b`, `part:x`, `body`, `bind:x`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A placeholder of the request's path.
    Path(String),
    /// A member of the query.
    Query(String),
    /// A header, in lower case.
    Header(String),
    /// A member of a form body.
    Form(String),
    /// A member of a JSON body; objects on the way are made.
    Json(Pointer),
    /// A part of a multipart body.
    Part(String),
    /// The whole body.
    Body,
    /// A place of a statement or filter: the value is bound, never written.
    Bind(String),
}

impl Place {
    /// Parses the text of `at`, `reference` or `dedupe-at`.
    ///
    /// # Errors
    /// A text that tells what is wrong, also when the place chooses method, host, account,
    /// credential, framing or proxying.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "body" {
            return Ok(Self::Body);
        }
        if text.len() > PLACE_BYTES_MAX {
            return Err(format!("a place is at most {PLACE_BYTES_MAX} bytes long"));
        }
        let Some((kind, name)) = text.split_once(':') else {
            return Err(format!("\"{text}\" is not a place; {KINDS}"));
        };
        match kind {
            "path" => placeholder_name(name).map(Self::Path),
            "query" => member_name(name).map(Self::Query),
            "header" => header_name(name).map(Self::Header),
            "form" => member_name(name).map(Self::Form),
            "part" => part_name(name).map(Self::Part),
            "json" => json_pointer(name).map(Self::Json),
            "bind" => bind_name(name).map(Self::Bind),
            _ => Err(format!("\"{kind}\" is not a kind of place; {KINDS}")),
        }
    }

    /// Where an answer that mirrors the request would show the same member, if the place tells.
    pub(crate) fn mirrored(&self) -> Option<Pointer> {
        match self {
            Self::Json(pointer) => Some(pointer.clone()),
            Self::Form(name) => form_path(name),
            _ => None,
        }
    }

    /// Whether the place is an element of an array, where one request would carry many effects.
    pub(crate) fn in_array(&self) -> bool {
        match self {
            Self::Form(name) | Self::Query(name) | Self::Part(name) => {
                name.split('[').skip(1).any(|step| step.trim_end_matches(']').bytes().all(|b| b.is_ascii_digit()))
            }
            _ => false,
        }
    }
}

const KINDS: &str = "use path:NAME, query:NAME, header:NAME, form:NAME, json:/POINTER, part:NAME, bind:NAME or body";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(name) => write!(f, "path:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Form(name) => write!(f, "form:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Part(name) => write!(f, "part:{name}"),
            Self::Body => f.write_str("body"),
            Self::Bind(name) => write!(f, "bind:{name}"),
        }
    }
}

/// `metadata[return]` in a form is `/metadata/return` in the object that was made of it.
fn form_path(name: &str) -> Option<Pointer> {
    let mut steps = name.split('[');
    let mut names = vec![steps.next()?.to_owned()];
    for step in steps {
        names.push(step.strip_suffix(']').filter(|s| !s.is_empty())?.to_owned());
    }
    Some(Pointer::of_names(names))
}

fn placeholder_name(name: &str) -> Result<String, String> {
    let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if good { Ok(name.to_owned()) } else { Err("a placeholder is letters, digits, \"_\" and \"-\"".into()) }
}

/// Names whose meaning is the sender's, not a field's: they choose the method or the credential.
const MEMBERS_REFUSED: &[&str] =
    &["_method", "access_token", "api_key", "apikey", "client_secret", "x-http-method-override"];

fn member_name(name: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.[]:$@".contains(&b);
    if name.is_empty() || !name.bytes().all(good) {
        return Err("a member's name is letters, digits and _ - . [ ] : $ @".into());
    }
    if MEMBERS_REFUSED.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("\"{name}\" chooses the method or the credential; policy does that, never a field"));
    }
    Ok(name.to_owned())
}

fn bind_name(name: &str) -> Result<String, String> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.chars().all(crate::statement::is_name) && name.len() <= crate::limits::NAME_BYTES_MAX {
        Ok(name.to_owned())
    } else {
        Err("a bound place is letters, digits and \"_\", beginning with a letter".into())
    }
}

fn part_name(name: &str) -> Result<String, String> {
    member_name(name)
}

/// Headers that choose method, host, account, credential, framing or proxying.
const HEADERS_REFUSED: &[&str] = &[
    "accept-encoding",
    "api-key",
    "apikey",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "origin",
    "range",
    "referer",
    "stripe-account",
    "stripe-context",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-api-key",
    "x-auth-token",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];
const HEADER_PREFIXES_REFUSED: &[&str] = &["proxy-", "x-forwarded", "sec-"];

fn header_name(name: &str) -> Result<String, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("\"{name}\" is not a header name"));
    }
    let name = name.to_ascii_lowercase();
    // Some servers read "_" as "-", so both spellings are judged.
    let judged = name.replace('_', "-");
    let refused = HEADERS_REFUSED.contains(&judged.as_str())
        || HEADER_PREFIXES_REFUSED.iter().any(|prefix| judged.starts_with(prefix));
    if refused {
        return Err(format!(
            "header \"{name}\" chooses method, host, account, credential, framing or proxying; the host or policy \
             writes it, never a field"
        ));
    }
    Ok(name)
}

fn json_pointer(text: &str) -> Result<Pointer, String> {
    let pointer = Pointer::parse(text)?;
    if pointer.segments().is_empty() {
        return Err("json: needs a member, as in json:/amount; use at = \"body\" for a whole body".into());
    }
    for segment in pointer.segments() {
        match segment {
            Segment::Any => return Err("one request is one effect: no \"*\" in a place".into()),
            Segment::Name(name) if name.is_empty() || name.bytes().all(|b| b.is_ascii_digit()) => {
                return Err("a JSON place names members of objects; arrays are not built".into());
            }
            Segment::Name(name) => {
                if MEMBERS_REFUSED.contains(&name.to_ascii_lowercase().as_str()) {
                    return Err(format!("\"{name}\" chooses the method or the credential; never a field"));
                }
            }
        }
    }
    Ok(pointer)
}

/// A piece of a path: fixed text or a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPiece {
    /// Fixed text, already in URL form.
    Fixed(String),
    /// The value of the field at `path:NAME`, percent-encoded.
    Placeholder(String),
}

/// The path of a request, as segments between slashes, and its constant query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    /// The text as it is in the contract.
    pub text: String,
    /// The segments, each of pieces; never empty.
    pub segments: Vec<Vec<PathPiece>>,
    /// The constant members of the query, in URL form.
    pub query: Vec<(String, String)>,
}

impl PathTemplate {
    /// Whether two templates are of one path, whatever their placeholders are called.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let alike = |(one, other): (&PathPiece, &PathPiece)| match (one, other) {
            (PathPiece::Placeholder(_), PathPiece::Placeholder(_)) => true,
            (one, other) => one == other,
        };
        let segments = self.segments.len() == other.segments.len();
        segments
            && self.query == other.query
            && self
                .segments
                .iter()
                .zip(&other.segments)
                .all(|(one, other)| one.len() == other.len() && one.iter().zip(other).all(alike))
    }

    /// Parses `/returns/{id}` or `/v1/refunds?limit=100`.
    ///
    /// # Errors
    /// A text that tells what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, query) = text.split_once('?').map_or((text, None), |(p, q)| (p, Some(q)));
        let Some(rest) = path.strip_prefix('/') else {
            return Err("the path begins with \"/\"".into());
        };
        let last = rest.split('/').count() - 1;
        let mut segments = Vec::new();
        for (i, segment) in rest.split('/').enumerate() {
            if segment == "." || segment == ".." || (segment.is_empty() && i != last) {
                return Err("a path has no empty, \".\" or \"..\" segment".into());
            }
            segments.push(pieces(segment)?);
        }
        let query = query.map_or(Ok(Vec::new()), constant_query)?;
        Ok(Self { text: text.to_owned(), segments, query })
    }

    /// The names of the placeholders, in order.
    pub fn placeholders(&self) -> Vec<&str> {
        let pieces = self.segments.iter().flatten();
        pieces
            .filter_map(|piece| match piece {
                PathPiece::Placeholder(name) => Some(name.as_str()),
                PathPiece::Fixed(_) => None,
            })
            .collect()
    }
}

fn pieces(segment: &str) -> Result<Vec<PathPiece>, String> {
    let mut pieces = Vec::new();
    let mut rest = segment;
    while !rest.is_empty() {
        let (fixed, after) = rest.split_once('{').map_or((rest, None), |(f, a)| (f, Some(a)));
        if !fixed.is_empty() {
            pieces.push(PathPiece::Fixed(fixed_text(fixed)?));
        }
        let Some(after) = after else { break };
        let Some((name, tail)) = after.split_once('}') else {
            return Err("a placeholder is closed by \"}\"".into());
        };
        pieces.push(PathPiece::Placeholder(placeholder_name(name)?));
        rest = tail;
    }
    Ok(pieces)
}

/// Fixed text of a path or query has no percent signs: nothing in it can decode to something else.
fn fixed_text(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$'()*+,;:@".contains(&b);
    if text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("\"{text}\" in the path is not plain URL text: letters, digits and - . _ ~ ! $ ' ( ) * + , ; : @"))
    }
}

fn constant_query(text: &str) -> Result<Vec<(String, String)>, String> {
    let member = |pair: &str| {
        if pair.contains('{') {
            return Err(
                "the query in a request is constant; declare a field at = \"query:NAME\" for a value".to_owned()
            );
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if value.contains('\'') {
            return Err("a quote has two spellings in a query; leave it out".to_owned());
        }
        Ok((member_name(name)?, fixed_text(value)?))
    };
    text.split('&').filter(|pair| !pair.is_empty()).map(member).collect()
}
