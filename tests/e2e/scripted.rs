//! A server that answers as it is told, byte by byte: what no real one would admit to.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// The head of a request, and how many came before it.
pub struct Asked {
    pub head: String,
    pub idx: usize,
}

/// A running one; it ends with its value.
pub struct Scripted {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Starts one. `script` says what bytes a request is answered with, head included; models are listed as
    /// `scripted` without asking it. Requests come one after the other.
    pub fn start(script: impl Fn(&Asked) -> String + Send + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let ended = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = (Arc::clone(&ended), Arc::clone(&asked));
        thread::spawn(move || {
            let mut idx = 0;
            for socket in listener.incoming() {
                if shared.0.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut socket) = socket else { continue };
                let Some((head, body)) = read(&mut socket) else {
                    continue;
                };
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = if path == "/v1/models" {
                    json(200, r#"{"data":[{"id":"scripted"}]}"#)
                } else {
                    shared.1.lock().expect("no panic").push(body);
                    idx += 1;
                    script(&Asked { head, idx: idx - 1 })
                };
                // A client that went away is its own affair.
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        Scripted {
            address,
            ended,
            asked,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The bodies that came so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes it up.
        let _ = TcpStream::connect(self.address);
    }
}

fn read(socket: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1)?;
            let length: usize = length.split("\r\n").next()?.parse().ok()?;
            if body.len() >= length {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        match socket.read(&mut buffer) {
            Ok(num) if num > 0 => bytes.extend_from_slice(&buffer[..num]),
            _ => return None,
        }
    }
}

/// A whole answer of this status.
pub fn answer(status: u16, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub fn json(status: u16, body: &str) -> String {
    answer(status, "application/json", body)
}

/// A stream of these events, ended by the connection's end.
pub fn stream(events: &[&str]) -> String {
    let events: String = events
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}")
}
