//! Errors as clients see them, in the shape of the API they speak.
//!
//! An error must name what it refuses: field, value, and what was expected.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// Which API a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// A stable name of the error.
    pub code: &'static str,
    /// What is wrong, for a person.
    pub message: String,
    /// The field at fault, with its parents.
    pub param: Option<String>,
    /// After how many seconds another try may succeed.
    pub retry_after_s: Option<u32>,
    /// What was there before the answer failed.
    pub partial: Option<Box<Value>>,
    /// More about it, for programs.
    pub detail: Option<Box<Value>>,
}

impl ApiError {
    /// An error of this status, code and message.
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            code,
            message: message.into(),
            param: None,
            retry_after_s: None,
            partial: None,
            detail: None,
        }
    }

    /// A 400 about a field.
    pub(crate) fn field(
        code: &'static str,
        param: impl Into<String>,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError {
            param: Some(param.into()),
            ..ApiError::new(400, code, message)
        }
    }

    /// A 400 about a field whose value isn't what was expected.
    pub(crate) fn value(param: impl Into<String>, value: &Value, expected: &str) -> ApiError {
        let param = param.into();
        let message = format!("{param} is {}, expected {expected}", shortened(value));
        ApiError::field("invalid_value", param, message)
    }

    /// A 400 about a field that is known but can't be served.
    pub(crate) fn unsupported(param: impl Into<String>, why: &str) -> ApiError {
        let param = param.into();
        let message = format!("{param} is not supported: {why}");
        ApiError::field("unsupported_field", param, message)
    }

    fn openai_type(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "service_unavailable_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The body. Anthropic's has the request's id in it.
    pub(crate) fn body(&self, api: Api, request_id: &str) -> Value {
        let mut body = match api {
            Api::OpenAi => json!({"error": {
                "message": self.message,
                "type": self.openai_type(),
                "param": self.param,
                "code": self.code,
            }}),
            Api::Anthropic => json!({
                "type": "error",
                "error": {
                    "type": self.anthropic_type(),
                    "message": self.message,
                    "param": self.param,
                    "code": self.code,
                },
                "request_id": request_id,
            }),
        };
        let more = [("partial", &self.partial), ("detail", &self.detail)];
        for (name, value) in more {
            if let Some(value) = value {
                body["error"][name] = Value::clone(value);
            }
        }
        body
    }

    /// The whole response.
    pub(crate) fn response(&self, api: Api, request_id: &str) -> Response<Body> {
        let mut response = json_response(self.status, &self.body(api, request_id));
        if let Some(seconds) = self.retry_after_s {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == 401 {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A response whose body is JSON.
pub(crate) fn json_response(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A value for an error message: long ones are cut.
pub(crate) fn shortened(value: &Value) -> String {
    const CHARS_MAX: usize = 80;
    let text = match value {
        Value::Object(map) if map.len() > 8 => format!("an object of {} fields", map.len()),
        Value::Array(items) if items.len() > 16 => format!("an array of {} items", items.len()),
        other => other.to_string(),
    };
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
