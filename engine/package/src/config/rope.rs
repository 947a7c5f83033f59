//! Rotary settings of a model, in the spellings of transformers 4 and 5.
//!
//! A kind of scaling that isn't known must never be read as none: it is refused by name.

use super::{Architecture, Fields, RopeConfig, RopeScaling};
use crate::error::PackageError;
use serde_json::{Map, Value};

/// Rotary settings, in either spelling.
pub(super) fn rope(
    architecture: Architecture,
    fields: &Fields<'_>,
    head_dim: usize,
) -> Result<RopeConfig, PackageError> {
    let empty = Map::new();
    let (name, map) = match (fields.get("rope_parameters"), fields.get("rope_scaling")) {
        (Some(Value::Object(map)), _) => ("rope_parameters", map),
        (Some(other), _) => return Err(fields.error("rope_parameters", other, "an object")),
        (None, Some(Value::Object(map))) => ("rope_scaling", map),
        (None, Some(other)) => return Err(fields.error("rope_scaling", other, "an object")),
        (None, None) => ("rope_parameters", &empty),
    };
    let parent = format!("{}{name}.", fields.parent);
    let inner = Fields {
        path: fields.path,
        parent: &parent,
        map,
    };
    let theta = match inner.number_if("rope_theta", 1.0, 1e12)? {
        Some(theta) => theta,
        None => fields
            .number_if("rope_theta", 1.0, 1e12)?
            .unwrap_or(10_000.0),
    };
    let default_share = match architecture {
        Architecture::Qwen3_5 => 0.25,
        Architecture::Llama | Architecture::Qwen3 => 1.0,
    };
    let partial_rotary_factor = match inner.number_if("partial_rotary_factor", 0.0, 1.0)? {
        Some(share) => share,
        None => fields
            .number_if("partial_rotary_factor", 0.0, 1.0)?
            .unwrap_or(default_share),
    };
    let rotary = head_dim as f64 * partial_rotary_factor;
    if rotary < 2.0 || (rotary / 2.0).fract() != 0.0 {
        let expected = format!("an even number of rotating dimensions out of head_dim {head_dim}");
        return Err(inner.wrong("partial_rotary_factor", partial_rotary_factor, &expected));
    }
    if partial_rotary_factor != 1.0 && architecture != Architecture::Qwen3_5 {
        return Err(inner.wrong("partial_rotary_factor", partial_rotary_factor, "1"));
    }
    Ok(RopeConfig {
        theta,
        scaling: rope_scaling(&inner)?,
        partial_rotary_factor,
    })
}

fn rope_scaling(inner: &Fields<'_>) -> Result<RopeScaling, PackageError> {
    let field = if inner.get("rope_type").is_some() {
        "rope_type"
    } else {
        "type"
    };
    let factor = || {
        inner
            .number_if("factor", 1.0, 1e6)?
            .ok_or_else(|| inner.wrong("factor", "absent", "a number from 1 to 1000000"))
    };
    let supported = "default, linear or llama3";
    match inner.get(field) {
        None => Ok(RopeScaling::None),
        Some(Value::String(kind)) => match kind.as_str() {
            // Multimodal checkpoints say mrope; over text alone its three positions are one.
            "default" | "mrope" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: factor()? }),
            "llama3" => {
                let of = |field: &str, default: f64| {
                    Ok(inner.number_if(field, 1e-3, 1e6)?.unwrap_or(default))
                };
                let low_freq_factor = of("low_freq_factor", 1.0)?;
                let high_freq_factor = of("high_freq_factor", 4.0)?;
                if high_freq_factor <= low_freq_factor {
                    let expected = format!("more than low_freq_factor, {low_freq_factor}");
                    return Err(inner.wrong("high_freq_factor", high_freq_factor, &expected));
                }
                Ok(RopeScaling::Llama3 {
                    factor: factor()?,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position_embeddings: inner
                        .size("original_max_position_embeddings", 1 << 30)?,
                })
            }
            _ => Err(inner.wrong(field, kind, supported)),
        },
        Some(other) => Err(inner.error(field, other, supported)),
    }
}
