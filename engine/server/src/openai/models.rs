//! `GET /v1/models`: what is served, in a shape that clients of both APIs read.
//! It must name nothing that a request's `model` would be refused for.

use crate::http::error::ApiError;
use crate::state::Shared;
use serde_json::{Value, json};

/// The list.
pub(crate) fn list(shared: &Shared) -> Value {
    let names = &shared.config.model_names;
    let data: Vec<Value> = names.iter().map(|name| entry(shared, name)).collect();
    json!({
        "object": "list",
        "data": data,
        "has_more": false,
        "first_id": names.first(),
        "last_id": names.last(),
    })
}

/// One model of the list.
pub(crate) fn get(shared: &Shared, id: &str) -> Result<Value, ApiError> {
    match shared.config.model_names.iter().find(|name| *name == id) {
        Some(name) => Ok(entry(shared, name)),
        None => Err(ApiError::new(
            404,
            "model_not_found",
            format!(
                "there is no model {id:?}, this server has {}",
                shared.config.model_names.join(", ")
            ),
        )),
    }
}

fn entry(shared: &Shared, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": shared.created,
        "created_at": rfc3339(shared.created),
        "owned_by": "lockstep",
        "root": shared.model_name(),
        "parent": null,
        "max_model_len": shared.backend.seq_len_max,
    })
}

/// A time as text. Days are turned into dates with years that begin in March, so that a leap day
/// is the last day of its year.
fn rfc3339(unix: u64) -> String {
    let (days, seconds) = (unix / 86_400, unix % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates() {
        for (unix, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(unix), text);
        }
    }
}
