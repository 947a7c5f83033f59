//! HTTP as bytes: requests that no client library would send, and answers read to their last byte.

use serde_json::Value;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// An answer.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Opens a connection. Its timeout ends a test that can't pass.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    stream
        .set_write_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    stream
}

pub fn head(method: &str, path: &str, body_len: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {body_len}\r\n\r\n"
    )
}

pub fn request(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Response {
    let mut bytes = head(method, path, body.len()).into_bytes();
    bytes.extend(body);
    raw(address, &bytes).expect("an answer")
}

pub fn post(address: SocketAddr, path: &str, body: &Value) -> Response {
    request(address, "POST", path, body.to_string().as_bytes())
}

/// Sends bytes as they are and reads what comes back; nothing, if the server just closes.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Option<Response> {
    let mut stream = connect(address);
    // A server may answer, and close, before it was sent everything.
    let _ = stream.write_all(bytes);
    read(&mut stream)
}

/// The same, and says that nothing more will come.
pub fn raw_to_the_end(address: SocketAddr, bytes: &[u8]) -> Option<Response> {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read(&mut stream)
}

pub fn read(stream: &mut TcpStream) -> Option<Response> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("no end of the answer: {error}"),
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Option<Response> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let rest = &bytes[at + 4..];
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked {
        unchunk(rest)
    } else {
        rest.to_vec()
    };
    Some(Response { status, head, body })
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.windows(2).position(|window| window == b"\r\n") else {
            panic!("a chunked body without an end");
        };
        let size = String::from_utf8_lossy(&rest[..at]).into_owned();
        let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
        if size == 0 {
            return body;
        }
        body.extend(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 4 + size..];
    }
}
