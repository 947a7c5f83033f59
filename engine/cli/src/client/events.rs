//! Server-sent events, read one by one from the body of an answer. It must never take the end of a connection
//! inside an event for the end of a stream.

use super::endpoint::Fault;
use std::io::{BufRead, Read};

/// The longest line of an event, in bytes.
const LINE_MAX: u64 = 16 << 20;

/// The events of a stream, one by one.
pub struct Events<R> {
    stream: R,
}

impl<R: BufRead> Events<R> {
    /// Reads from a body.
    pub fn new(stream: R) -> Events<R> {
        Events { stream }
    }

    /// The data of the next event, its lines joined; None at the end. Comments and other fields are
    /// passed over.
    ///
    /// # Errors
    /// A connection that breaks off, bytes that are no UTF-8, or an end inside an event.
    pub fn next_event(&mut self) -> Result<Option<String>, Fault> {
        let mut data: Option<String> = None;
        loop {
            let mut bytes = Vec::new();
            let mut line = self.stream.by_ref().take(LINE_MAX);
            line.read_until(b'\n', &mut bytes)
                .map_err(|error| Fault::io(&error))?;
            let ended = bytes.is_empty();
            if bytes.pop_if(|byte| *byte == b'\n').is_none() && !ended {
                let rest = String::from_utf8_lossy(&bytes);
                return Err(invalid(format!(
                    "it ends inside a line: {}",
                    shortened(&rest)
                )));
            }
            bytes.pop_if(|byte| *byte == b'\r');
            let line = String::from_utf8(bytes).map_err(|_| invalid("it is no UTF-8"))?;
            if line.is_empty() {
                match data {
                    Some(_) if ended => return Err(invalid("it ends inside an event")),
                    None if ended => return Ok(None),
                    Some(data) => return Ok(Some(data)),
                    None => continue,
                }
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            if name == "data" {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => data = Some(value.to_owned()),
                }
            }
        }
    }
}

/// A stream that is none, or no whole one.
pub fn invalid(message: impl std::fmt::Display) -> Fault {
    Fault::new("stream", format!("the stream is invalid: {message}"))
}

/// The beginning of a text that may be long.
pub fn shortened(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn events(text: &str) -> Result<Vec<String>, Fault> {
        let mut found = Vec::new();
        for piece in [1, 3, 4096] {
            let mut events = Events::new(BufReader::with_capacity(piece, text.as_bytes()));
            let mut all = Vec::new();
            while let Some(data) = events.next_event()? {
                all.push(data);
            }
            found.push(all);
        }
        assert!(found.iter().all(|all| *all == found[0]), "{text:?}");
        Ok(found.swap_remove(0))
    }

    #[test]
    fn events_of_every_spelling() {
        let rows: &[(&str, &[&str])] = &[
            ("", &[]),
            ("data: a\n\ndata:b\n\n", &["a", "b"]),
            (": alive\n\ndata: a\r\n\r\n\n\n", &["a"]),
            ("event: x\nid: 7\ndata: a\ndata: b\n\n", &["a\nb"]),
            ("data:  two spaces\n\ndata\n\n", &[" two spaces", ""]),
        ];
        for (text, expected) in rows {
            assert_eq!(events(text).expect("a stream"), *expected, "{text:?}");
        }
        for broken in [
            "data: a",
            "data: a\n",
            "data: a\n\ndata: b\n",
            "data: \u{e4}",
        ] {
            let fault = events(broken).expect_err(broken);
            assert_eq!(fault.code, "stream", "{fault:?}");
        }
    }
}
