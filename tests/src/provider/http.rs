//! As much of HTTP/1.1 as a provider needs: it reads what came, byte for byte, and writes what a
//! mode wants written, however wrong.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

use percent_encoding::percent_decode_str;

/// More than any test sends; a longer body ends the connection.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// A head of more lines than this is no request.
const HEAD_LINES_MAX: usize = 200;

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, as sent.
    pub method: String,
    /// The path before `?`, still percent-encoded.
    pub path: String,
    /// The text after `?`, still percent-encoded.
    pub query: String,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body, after chunks were joined.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of that lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The last segment of the path, decoded.
    pub fn last_segment(&self) -> String {
        decode(self.path.rsplit('/').next().unwrap_or_default())
    }

    /// The pairs of the query.
    pub fn query_pairs(&self) -> Vec<(String, String)> {
        pairs(&self.query)
    }

    /// The pairs of a form body.
    pub fn form_pairs(&self) -> Vec<(String, String)> {
        pairs(&String::from_utf8_lossy(&self.body))
    }
}

/// The value of the first pair of that name.
pub fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn pairs(text: &str) -> Vec<(String, String)> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// Reads the first line of the next request; none when the peer has closed the connection. The
/// rest is left for [`read_rest`].
///
/// # Errors
/// The socket failed, or what came is not a request.
pub fn read_first_line(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(malformed("the request line"));
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    }))
}

/// Reads the headers and the body into a request of which the first line is known.
///
/// # Errors
/// The socket failed, or what came is not a request.
pub fn read_rest(reader: &mut BufReader<TcpStream>, request: &mut Request) -> io::Result<()> {
    request.headers = read_headers(reader)?;
    request.body = read_body(reader, request)?;
    Ok(())
}

fn read_headers(reader: &mut BufReader<TcpStream>) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for _ in 0..HEAD_LINES_MAX {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(headers);
        }
        let (name, value) = line.split_once(':').ok_or(malformed("a header"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Err(malformed("the head, which is too long,"))
}

fn read_body(reader: &mut BufReader<TcpStream>, request: &Request) -> io::Result<Vec<u8>> {
    if request.header("transfer-encoding").is_some() {
        return read_chunks(reader);
    }
    let Some(length) = request.header("content-length") else {
        return Ok(Vec::new());
    };
    let length = length.parse::<u64>().map_err(|_| malformed("content-length"))?;
    read_exactly(reader, length)
}

fn read_chunks(reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = u64::from_str_radix(line.trim_end(), 16).map_err(|_| malformed("a chunk"))?;
        body.extend(read_exactly(reader, length)?);
        reader.read_line(&mut line)?;
        if length == 0 {
            return Ok(body);
        }
    }
}

fn read_exactly(reader: &mut BufReader<TcpStream>, length: u64) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(malformed("the body, which is too long,"));
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is not HTTP/1.1"))
}

/// An answer before a mode spoils it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Headers beside the framing and `Content-Type`.
    pub headers: Vec<(String, String)>,
    /// The body, JSON in all domains.
    pub body: Vec<u8>,
}

impl Reply {
    /// An answer with a JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string().into_bytes() }
    }

    /// The provider's refusal in the shape that payment providers use.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error": { "code": code, "message": message } }))
    }

    /// The head, with a body length that may be a lie; none means chunked.
    pub fn head(&self, content_length: Option<usize>) -> Vec<u8> {
        let mut head =
            format!("HTTP/1.1 {} {}\r\nContent-Type: application/json\r\n", self.status, phrase(self.status));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&match content_length {
            Some(length) => format!("Content-Length: {length}\r\n\r\n"),
            None => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        });
        head.into_bytes()
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        402 => "Payment Required",
        404 => "Not Found",
        409 => "Conflict",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Other",
    }
}
