//! Server-sent events: how a stream's bytes are made, and what order its events may have.
//!
//! A stream never just ends: whatever happens to the engine, the encoder of its API gets the end of
//! each choice and then closes the stream in that API's own way.

pub mod words;

use crate::generation::{Generation, Update};
use crate::net::select;
use crate::time::sleep;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use lockstep_step::planted;
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;

/// Turns updates into the events of one API.
pub(crate) trait Encoder: Send + 'static {
    /// What comes before the first update.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// An update of a choice.
    fn update(&mut self, choice: usize, update: Update, out: &mut Vec<u8>);
    /// What comes after the end of the last choice.
    fn end(&mut self, out: &mut Vec<u8>);
}

/// Appends an event without a name.
pub(crate) fn write_data(data: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    // JSON text has no line breaks, so one data line is enough.
    out.extend_from_slice(data.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends an event with a name.
pub(crate) fn write_event(name: &str, data: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    write_data(data, out);
}

/// Bytes that are sent together at most, if more is waiting.
const FRAME_BYTES: usize = 16 << 10;

struct Stream<E> {
    generation: Generation,
    encoder: E,
    keep_alive: Duration,
    begun: bool,
    ended: bool,
}

impl<E: Encoder> Stream<E> {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Stream<E>)> {
        if self.ended {
            return None;
        }
        let mut out = Vec::new();
        if !self.begun {
            self.begun = true;
            self.encoder.begin(&mut out);
        }
        // Planted: kekzl/imp#762.
        while (out.is_empty() || planted!(StreamHeldToItsEnd)) && !self.ended {
            let item = select! {
                biased;
                item = self.generation.next() => item,
                () = sleep(self.keep_alive) => {
                    out.extend_from_slice(b": keep-alive\n\n");
                    break;
                }
            };
            self.take(item, &mut out);
            while out.len() < FRAME_BYTES
                && let Some(item) = self.generation.try_next()
            {
                self.take(Some(item), &mut out);
            }
        }
        Some((Ok(Bytes::from(out)), self))
    }

    fn take(&mut self, item: Option<(usize, Update)>, out: &mut Vec<u8>) {
        match item {
            Some((choice, update)) => self.encoder.update(choice, update, out),
            None => {
                self.ended = true;
                self.encoder.end(out);
            }
        }
    }
}

/// A response that streams. Dropping its body aborts the request.
pub(crate) fn response(
    generation: Generation,
    encoder: impl Encoder,
    keep_alive: Duration,
) -> Response<Body> {
    let stream = Stream {
        generation,
        encoder,
        keep_alive,
        begun: false,
        ended: false,
    };
    let body = Body::from_stream(futures_util::stream::unfold(stream, Stream::next));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod laws;
