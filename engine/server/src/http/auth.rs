//! API keys: which one a client shows, and whether it is one of ours.
//! A key is never written anywhere, and comparing takes the same time whatever it is.

use crate::http::error::ApiError;
use axum::http::{HeaderMap, header};
use std::hint::black_box;

/// Checks the key that a client shows as `Authorization: Bearer` or as `x-api-key`.
pub(crate) fn check(keys: &[String], headers: &HeaderMap) -> Result<(), ApiError> {
    if keys.is_empty() {
        return Ok(());
    }
    let shown = shown_key(headers).ok_or_else(|| {
        ApiError::new(
            401,
            "missing_api_key",
            "no API key, expected one as `Authorization: Bearer KEY` or `x-api-key: KEY`",
        )
    })?;
    // All keys are looked at, so that the time doesn't tell which one is near.
    let known = keys
        .iter()
        .fold(false, |known, key| known | same(key.as_bytes(), shown));
    match black_box(known) {
        true => Ok(()),
        false => Err(ApiError::new(
            401,
            "invalid_api_key",
            "the API key is not one of this server's",
        )),
    }
}

fn shown_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get("x-api-key") {
        return Some(key.as_bytes());
    }
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
}

/// Equality in a time that depends on the length of the shown key alone.
fn same(key: &[u8], shown: &[u8]) -> bool {
    let mut difference = u8::from(key.len() != shown.len());
    for (idx, byte) in shown.iter().enumerate() {
        let ours = key.get(idx % key.len().max(1)).copied().unwrap_or(0);
        difference = black_box(difference | (ours ^ byte));
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_is_the_same() {
        for (key, shown, expected) in [
            ("abc", "abc", true),
            ("abc", "abd", false),
            ("abc", "ab", false),
            ("abc", "abcabc", false),
            ("abc", "", false),
            ("", "", true),
            ("", "\0", false),
        ] {
            let actual = same(key.as_bytes(), shown.as_bytes());
            assert_eq!(actual, expected, "{key:?} {shown:?}");
        }
    }
}
