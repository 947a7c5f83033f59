//! Captures, as far as the server has to do with them: what the loop of the engine tells, the bytes of responses,
//! and the route on which holders of an admin key get one. It must never give one to anybody else.

use crate::http::auth;
use crate::http::error::ApiError;
use crate::net::off_the_runtime;
use crate::observer::Observer;
use crate::state::Shared;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt;
use lockstep_capture::{Recorder, Ring, RingError};
use lockstep_core::{Event, Refusal, Request};
use lockstep_step::SeqId;
use std::fmt;
use std::sync::Arc;

/// Where captures are kept.
pub trait Archive: Send + Sync {
    /// The capture of one request, as a file.
    ///
    /// # Errors
    /// If there is none, or it can't be read.
    fn of_request(&self, request_id: &str) -> Result<Vec<u8>, RingError>;

    /// Records that are missing, since they came too fast or the disk did not take them.
    fn num_lost(&self) -> u64;
}

impl Archive for Ring {
    fn of_request(&self, request_id: &str) -> Result<Vec<u8>, RingError> {
        Ring::of_request(self, request_id)
    }

    fn num_lost(&self) -> u64 {
        let (lost, failed) = self.losses();
        lost + failed
    }
}

/// What a server needs to record, and to give captures out.
#[derive(Clone)]
pub struct Captures {
    /// Writes down what happens.
    pub recorder: Recorder,
    /// Where that is kept.
    pub archive: Arc<dyn Archive>,
    /// Keys of which one must be shown to get a capture; without any nobody gets one.
    pub admin_keys: Vec<String>,
    /// Whether digests of what operations compute are asked of the backend as well.
    pub with_ops: bool,
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Captures({} admin keys)", self.admin_keys.len())
    }
}

impl Observer for Recorder {
    fn submitting(&mut self, request_id: &str, choice: usize, request: &Request) {
        Recorder::submitting(self, request_id, choice, request);
    }

    fn submitted(&mut self, result: Result<SeqId, &Refusal>) {
        Recorder::submitted(self, result);
    }

    fn left(&mut self, seq: SeqId) {
        Recorder::left(self, seq);
    }

    fn event(&mut self, event: &Event) {
        Recorder::event(self, event);
    }

    fn ended(&mut self, reason: &str) {
        Recorder::ended(self, reason);
    }
}

/// The same response, whose bytes are written down on their way.
pub(crate) fn tapped(recorder: &Recorder, id: &str, response: Response<Body>) -> Response<Body> {
    let tap = Tap {
        recorder: recorder.clone(),
        request_id: id.to_string(),
    };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                tap.recorder.streamed(&tap.request_id, data, false);
            }
            frame
        }))
    })
}

struct Tap {
    recorder: Recorder,
    request_id: String,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.recorder.streamed(&self.request_id, &[], true);
    }
}

/// Answers `GET /captures/{id}`.
pub(crate) async fn answer(
    shared: &Shared,
    headers: &HeaderMap,
    request_id: &str,
) -> Result<Response<Body>, ApiError> {
    let captures = shared
        .config
        .captures
        .as_ref()
        .ok_or_else(|| ApiError::new(404, "not_recorded", "this server records no captures"))?;
    if captures.admin_keys.is_empty() {
        let message = "captures are given to holders of an admin key, and this server has none";
        return Err(ApiError::new(403, "no_admin_key", message));
    }
    auth::check(&captures.admin_keys, headers)?;
    let (archive, id) = (captures.archive.clone(), request_id.to_string());
    let found = off_the_runtime(move || archive.of_request(&id)).await;
    let found = found.map_err(|error| ApiError::new(500, "capture_failed", error))?;
    let bytes = found.map_err(|error| match error {
        RingError::Unknown => ApiError::new(404, "unknown_request", error.to_string()),
        RingError::Gone => ApiError::new(410, "capture_gone", error.to_string()),
        RingError::Io(..) | RingError::Format(..) => {
            ApiError::new(500, "capture_failed", error.to_string())
        }
    })?;
    let mut response = Response::new(Body::from(bytes));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
