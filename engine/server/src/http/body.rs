//! Reads a request's body as JSON, within limits.
//! It must never keep more of a body than the limit allows.

use crate::http::error::ApiError;
use crate::state::Limits;
use crate::time::timeout;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
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

/// A body that says what it is must say that it is JSON. This also keeps web pages of other sites
/// from sending requests with a visitor's browser, which may not send JSON unasked.
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
    if kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json") {
        return Ok(());
    }
    let message = format!("content-type is {text:?}, expected application/json");
    Err(ApiError {
        param: Some("content-type".to_string()),
        ..ApiError::new(415, "unsupported_media_type", message)
    })
}

async fn read(limits: &Limits, headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let max = limits.body_bytes_max;
    let too_large = |found: &str| {
        let message = format!("the body has {found} bytes, expected at most {max}");
        ApiError::new(413, "body_too_large", message)
    };
    let declared = headers.get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = declared.filter(|length| *length > max as u64) {
        return Err(too_large(&length.to_string()));
    }
    let collected = timeout(limits.body_read_timeout, Limited::new(body, max).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(too_large(&format!("more than {max}")))
        }
        Ok(Err(error)) => Err(ApiError::new(
            400,
            "broken_body",
            format!("the body broke off: {error}"),
        )),
        Err(_) => Err(ApiError::new(
            408,
            "body_timeout",
            format!(
                "the body did not come within {} s",
                limits.body_read_timeout.as_secs()
            ),
        )),
    }
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
