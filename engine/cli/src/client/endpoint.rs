//! A server's address, and one HTTP/1.1 exchange per connection with it, over the
//! standard library's sockets. It must never retry: what fails is counted as it failed.

use std::{
    fmt::Display,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

/// The longest line of a head, in bytes.
const HEAD_LINE_MAX: u64 = 64 << 10;
/// The most bytes of a body that is read whole.
const WHOLE_BODY_MAX: u64 = 64 << 20;

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: SocketAddr,
    /// As the header `host` wants it.
    authority: String,
    /// Path before the routes of the API, without a slash at its end.
    prefix: String,
    api_key: Option<String>,
    /// How long a server may say nothing.
    timeout: Duration,
}

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What errors are counted by: a status such as `429`, or a word.
    pub code: String,
    /// In words.
    pub message: String,
}

impl Fault {
    /// A failure of this kind.
    pub fn new(code: impl Display, message: impl Display) -> Fault {
        Fault {
            code: code.to_string(),
            message: message.to_string(),
        }
    }

    /// A failure of a connection that was open.
    pub fn io(error: &io::Error) -> Fault {
        let code = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "timeout",
            io::ErrorKind::InvalidData => "http",
            _ => "connection",
        };
        Fault::new(code, error)
    }
}

impl Endpoint {
    /// Reads an address such as `http://127.0.0.1:8000/v1` and looks its host up.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(url: &str, api_key: Option<&str>, timeout: Duration) -> Result<Endpoint, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            format!("{url:?} has no http:// at its beginning; https is not spoken here")
        })?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/v1"),
        };
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !plain(rest) {
            return Err(format!(
                "{url:?} is no address: expected http://HOST:PORT/v1"
            ));
        }
        if !api_key.is_none_or(plain) {
            return Err("the API key has characters that no header may hold".to_owned());
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let with_port = match has_port {
            true => authority.to_owned(),
            false => format!("{authority}:80"),
        };
        let address = with_port
            .to_socket_addrs()
            .map_err(|error| format!("{authority:?}: {error}"))?
            .next()
            .ok_or_else(|| format!("{authority:?} has no address"))?;
        Ok(Endpoint {
            address,
            authority: authority.to_owned(),
            prefix: path.trim_end_matches('/').to_owned(),
            api_key: api_key.map(str::to_owned),
            timeout,
        })
    }

    /// As it was given.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.prefix)
    }

    /// Sends the body to a route of the API and reads the head of the answer.
    ///
    /// # Errors
    /// No connection, or no HTTP. A status is no error here.
    pub fn post(&self, route: &str, body: &[u8]) -> Result<Response, Fault> {
        self.exchange("POST", &format!("{}{route}", self.prefix), body)
    }

    /// A route of the API, read whole.
    ///
    /// # Errors
    /// As [`Endpoint::post`], and any status but 200.
    pub fn get(&self, route: &str) -> Result<String, Fault> {
        let response = self.exchange("GET", &format!("{}{route}", self.prefix), b"")?;
        response.whole()
    }

    /// The server's metrics, which lie beside the API and not in it.
    ///
    /// # Errors
    /// As [`Endpoint::get`].
    pub fn metrics(&self) -> Result<String, Fault> {
        let root = self.prefix.strip_suffix("/v1").unwrap_or(&self.prefix);
        self.exchange("GET", &format!("{root}/metrics"), b"")?
            .whole()
    }

    fn exchange(&self, method: &str, path: &str, body: &[u8]) -> Result<Response, Fault> {
        let connect = TcpStream::connect_timeout(&self.address, self.timeout);
        let mut stream = connect.map_err(|error| Fault::new("connect", error))?;
        let set_up = |stream: &TcpStream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(self.timeout))?;
            stream.set_write_timeout(Some(self.timeout))
        };
        set_up(&stream).map_err(|error| Fault::io(&error))?;
        // Anthropic's API knows the key by another name, and wants a version; others pass over both.
        let key = match &self.api_key {
            Some(key) => format!("authorization: Bearer {key}\r\nx-api-key: {key}\r\n"),
            None => String::new(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{key}\
             anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            self.authority,
            body.len()
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        // A server may answer, and close, before it has read everything; its answer counts.
        let sent = stream.write_all(&bytes);
        match (Response::read(BufReader::new(stream)), sent) {
            (Ok(response), _) => Ok(response),
            (Err(_), Err(error)) | (Err(error), Ok(())) => Err(Fault::io(&error)),
        }
    }
}

/// An answer whose head was read.
pub struct Response<R = BufReader<TcpStream>> {
    /// The status.
    pub status: u16,
    /// What follows, without its framing.
    pub body: Body<R>,
}

impl<R: BufRead> Response<R> {
    fn read(mut stream: R) -> io::Result<Response<R>> {
        let first = head_line(&mut stream)?;
        let status = first
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok())
            .ok_or_else(|| invalid(format!("{first:?} is no status line of HTTP/1.1")))?;
        let mut framing = Framing::UntilClose;
        loop {
            let line = head_line(&mut stream)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| invalid(format!("{line:?} is no header")))?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(invalid(format!("transfer-encoding {value:?}")));
                }
                framing = Framing::Chunk {
                    left: 0,
                    begun: false,
                };
            } else if name.eq_ignore_ascii_case("content-length") && framing == Framing::UntilClose
            {
                let length = value.parse();
                let length = length.map_err(|_| invalid(format!("content-length {value:?}")))?;
                framing = Framing::Length(length);
            }
        }
        Ok(Response {
            status,
            body: Body { stream, framing },
        })
    }

    /// The whole body of an answer that must be a success.
    ///
    /// # Errors
    /// Any status but 200, with the server's own message.
    pub fn whole(self) -> Result<String, Fault> {
        let status = self.status;
        let (bytes, broken) = self.bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status != 200 {
            return Err(Fault::new(status, server_message(&text)));
        }
        broken.map_or(Ok(text), Err)
    }

    /// The body as far as it came, and what broke it off.
    pub fn bytes(self) -> (Vec<u8>, Option<Fault>) {
        let mut bytes = Vec::new();
        let read = self.body.take(WHOLE_BODY_MAX).read_to_end(&mut bytes);
        let broken = match read {
            Err(error) => Some(Fault::io(&error)),
            Ok(_) if bytes.len() as u64 == WHOLE_BODY_MAX => {
                let what = format!("it has more than {WHOLE_BODY_MAX} bytes");
                Some(Fault::new("http", what))
            }
            Ok(_) => None,
        };
        (bytes, broken)
    }
}

/// What an error's body says, or its beginning if it is not of the API's form.
fn server_message(text: &str) -> String {
    let json = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    match json["error"]["message"].as_str() {
        Some(message) => message.to_owned(),
        None => text.chars().take(200).collect(),
    }
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// So many bytes are left of a chunk; the first has no line end before its size.
    Chunk { left: u64, begun: bool },
    /// By the end of the connection.
    UntilClose,
    /// It was reached.
    Ended,
}

/// A body without its framing. Hands out what has arrived, never waiting for more than one byte.
pub struct Body<R> {
    stream: R,
    framing: Framing,
}

impl<R: BufRead> Body<R> {
    /// Reads the size of the next chunk; at the last one the rest of the message as well.
    fn next_chunk(&mut self, begun: bool) -> io::Result<()> {
        if begun && !head_line(&mut self.stream)?.is_empty() {
            return Err(invalid("a chunk is longer than its size says".to_owned()));
        }
        let line = head_line(&mut self.stream)?;
        let size = line.split(';').next().unwrap_or("").trim();
        let left = u64::from_str_radix(size, 16)
            .map_err(|_| invalid(format!("{size:?} is no size of a chunk")))?;
        self.framing = Framing::Chunk { left, begun: true };
        if left == 0 {
            while !head_line(&mut self.stream)?.is_empty() {}
            self.framing = Framing::Ended;
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Framing::Chunk { left: 0, begun } = self.framing {
            self.next_chunk(begun)?;
        }
        let left = match self.framing {
            Framing::Ended => return Ok(0),
            Framing::UntilClose => return self.stream.read(out),
            Framing::Length(left) | Framing::Chunk { left, .. } => left,
        };
        let wanted = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let num = self.stream.read(&mut out[..wanted])?;
        if num == 0 {
            let message = format!("the connection ended {left} bytes before the body");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        let left = left - num as u64;
        self.framing = match self.framing {
            Framing::Chunk { .. } => Framing::Chunk { left, begun: true },
            _ => Framing::Length(left),
        };
        Ok(num)
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// A line of a head or of a chunk's framing, without its end.
fn head_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream
        .by_ref()
        .take(HEAD_LINE_MAX)
        .read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        let message = "the connection ended inside an HTTP head";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| invalid("an HTTP head is no UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<Endpoint, String> {
        Endpoint::new(url, None, Duration::from_secs(1))
    }

    #[test]
    fn addresses() {
        let full = endpoint("http://127.0.0.1:8000/v1/").expect("an address");
        assert_eq!(full.url(), "http://127.0.0.1:8000/v1");
        let bare = endpoint("http://127.0.0.1").expect("an address");
        assert_eq!(
            (bare.url().as_str(), bare.address.port()),
            ("http://127.0.0.1/v1", 80)
        );
        let six = endpoint("http://[::1]:9/api/v1").expect("an address");
        assert_eq!((six.prefix.as_str(), six.address.port()), ("/api/v1", 9));
        for bad in [
            "https://127.0.0.1",
            "127.0.0.1:8000",
            "http://",
            "http:///v1",
            "http://a b/",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
        let key = Endpoint::new(
            "http://127.0.0.1",
            Some("a\r\nx: y"),
            Duration::from_secs(1),
        );
        assert!(key.is_err_and(|error| error.contains("API key")));
    }

    /// Status, body and error of an answer that arrives in pieces of a size.
    fn read(bytes: &[u8], piece: usize) -> Result<(u16, String), io::ErrorKind> {
        let mut response =
            Response::read(BufReader::with_capacity(piece, bytes)).map_err(|error| error.kind())?;
        let mut text = String::new();
        let read = response.body.read_to_string(&mut text);
        read.map_err(|error| error.kind())?;
        Ok((response.status, text))
    }

    #[test]
    fn bodies_of_every_framing() {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        let fine = |status, text: &str| Ok((status, text.to_owned()));
        type Row<'a> = (&'a str, Result<(u16, String), io::ErrorKind>);
        let rows: &[Row<'_>] = &[
            ("HTTP/1.1 200 OK\r\n\r\nto the end", fine(200, "to the end")),
            (
                "HTTP/1.1 429 Too Many\r\nContent-Length: 3\r\n\r\nabcd",
                fine(429, "abc"),
            ),
            (
                "HTTP/1.0 204 No\r\ncontent-length: 0\r\n\r\n",
                fine(204, ""),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n\
                 0123456789\r\n0\r\ntrailer: 1\r\n\r\n",
                fine(200, "abc0123456789"),
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
                Err(UnexpectedEof),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
                Err(UnexpectedEof),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n",
                Err(InvalidData),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
                Err(InvalidData),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
                Err(InvalidData),
            ),
            ("HTTP/1.1 200 OK\r\nno header\r\n\r\n", Err(InvalidData)),
            ("HTTP/2 200\r\n\r\n", Err(InvalidData)),
            ("", Err(UnexpectedEof)),
        ];
        for (bytes, expected) in rows {
            for piece in [1, 2, 7, 4096] {
                assert_eq!(
                    &read(bytes.as_bytes(), piece),
                    expected,
                    "{bytes:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn a_refusal_has_the_words_of_the_server() {
        let bytes = b"HTTP/1.1 429 x\r\n\r\n{\"error\":{\"message\":\"too much waits\"}}";
        let response = Response::read(&bytes[..]).expect("a head");
        assert_eq!(response.whole(), Err(Fault::new(429, "too much waits")));
        let response = Response::read(&b"HTTP/1.1 502 x\r\n\r\n<html>"[..]).expect("a head");
        assert_eq!(response.whole(), Err(Fault::new(502, "<html>")));
    }
}
