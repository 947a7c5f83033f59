//! Reads a request's body as JSON, within limits.
//! It must never keep more of a body than the limit allows.

use crate::http::error::ApiError;
use crate::state::Limits;
use crate::time::timeout;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::Value;

/// The body as JSON.
pub(crate) async fn read_json(
    limits: &Limits,
    headers: &HeaderMap,
    body: Body,
) -> Result<Value, ApiError> {
    check_type(headers)?;
    let bytes = read(limits, headers, body).await?;
    parse(&bytes)
}

/// A body that says that it is something else than JSON is refused, before it is misread.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or("");
    let kind = text
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    // The last one is what `curl -d` says unless it is told otherwise.
    let fine = ["application/json", "application/x-www-form-urlencoded"].contains(&kind.as_str());
    if fine || kind.starts_with("application/") && kind.ends_with("+json") {
        return Ok(());
    }
    let message = format!("content-type is {text:?}, expected application/json");
    Err(ApiError {
        param: Some("content-type".to_string()),
        ..ApiError::new(415, "unsupported_media_type", message)
    })
}

async fn read(limits: &Limits, headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    match timeout(
        limits.body_read_timeout,
        take(limits.body_bytes_max, headers, body),
    )
    .await
    {
        Ok(result) => result,
        Err(_) => {
            let seconds = limits.body_read_timeout.as_secs();
            let message = format!("the body did not come within {seconds} s");
            Err(ApiError::new(408, "body_timeout", message))
        }
    }
}

/// How much of a body over the limit is read and thrown away, in limits: a client that still sends
/// when the connection closes may never see why.
const DISCARDED_LIMITS: usize = 4;

async fn take(max: usize, headers: &HeaderMap, mut body: Body) -> Result<Bytes, ApiError> {
    let declared = headers.get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let mut taken = BytesMut::new();
    let mut num_bytes = declared
        .filter(|length| *length > max)
        .map_or(0, |_| max + 1);
    let waits = num_bytes > max && headers.contains_key(header::EXPECT);
    while num_bytes <= max.saturating_mul(DISCARDED_LIMITS) && !waits {
        let Some(frame) = body.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| {
            ApiError::new(400, "broken_body", format!("the body broke off: {error}"))
        })?;
        let data = frame.into_data().unwrap_or_default();
        num_bytes += data.len();
        if num_bytes <= max {
            taken.extend_from_slice(&data);
        } else {
            taken = BytesMut::new();
        }
    }
    if num_bytes <= max {
        return Ok(taken.freeze());
    }
    let found = declared.map_or_else(|| format!("more than {max}"), |length| length.to_string());
    let message = format!("the body has {found} bytes, expected at most {max}");
    Err(ApiError::new(413, "body_too_large", message))
}

/// JSON, with the place where it isn't. Nesting is limited to 128 levels by the reader.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let message = format!(
            "the body is not UTF-8: byte {} is part of no character",
            error.valid_up_to()
        );
        ApiError::new(400, "invalid_utf8", message)
    })?;
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let mut reason = error.to_string();
        if let Some(end) = reason.rfind(" at line ") {
            reason.truncate(end);
        }
        let message = format!("the body is not JSON: {reason}, at line {line}, column {column}");
        ApiError::new(400, "invalid_json", message)
    })
}
