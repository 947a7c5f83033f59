//! The architecture and dimensions of a model, read from `config.json` and checked field by field.
//!
//! Both spellings of rotary settings are read (`rope_parameters`, and `rope_theta` with
//! `rope_scaling`), and both layouts (flat, and nested under `text_config`). It must never let a
//! value through that a kernel would have to doubt: every number has a range here, and what isn't
//! supported is refused by name.

mod rope;

use crate::error::PackageError;
use serde_json::{Map, Value};
use std::path::Path;

/// A family of models that the engine can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Architecture {
    /// Llama 2 and 3, and models of the same shape such as SmolLM2.
    Llama,
    /// Qwen3, dense: Llama with a norm over each head's queries and keys.
    Qwen3,
    /// Qwen3.5, dense: gated delta net layers, and gated full attention in every fourth or so.
    #[allow(
        non_camel_case_types,
        reason = "the model's own name has a point there"
    )]
    Qwen3_5,
}

/// The `model_type` values that are understood, for error messages.
pub const SUPPORTED_MODEL_TYPES: &str = "llama, qwen3, qwen3_5 or qwen3_5_text";

/// What a layer mixes tokens with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum LayerType {
    /// Softmax attention over all earlier positions.
    FullAttention,
    /// A gated delta net with a causal convolution before it.
    LinearAttention,
}

/// How rotary frequencies are stretched beyond the length that the model was trained on first.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions divided by `factor`.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// Llama 3: low frequencies divided by `factor`, high ones kept, those between interpolated.
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Wavelengths longer than the original length over this are divided.
        low_freq_factor: f64,
        /// Wavelengths shorter than the original length over this are kept.
        high_freq_factor: f64,
        /// The length, in tokens, that the model was trained on first.
        original_max_position_embeddings: usize,
    },
}

/// Rotary position embedding.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct RopeConfig {
    /// The base of the frequencies.
    pub theta: f64,
    /// How frequencies are stretched.
    pub scaling: RopeScaling,
    /// The share of each head's dimensions that rotates, in (0, 1].
    pub partial_rotary_factor: f64,
}

/// Dimensions of the gated delta net layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct LinearConfig {
    /// Heads of queries and keys.
    pub num_key_heads: usize,
    /// Heads of values; a multiple of `num_key_heads`.
    pub num_value_heads: usize,
    /// Dimensions of a query or key head.
    pub key_head_dim: usize,
    /// Dimensions of a value head.
    pub value_head_dim: usize,
    /// Taps of the causal convolution.
    pub conv_kernel: usize,
}

/// All that a backend must know about a model besides its weights.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Rows of the embedding; token ids are below it. May be larger than the tokenizer's
    /// vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Number of layers; the length of `layer_types`.
    pub num_layers: usize,
    /// Query heads of full attention.
    pub num_attention_heads: usize,
    /// Key and value heads of full attention; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Dimensions of an attention head; even.
    pub head_dim: usize,
    /// Added to the mean of squares in every RMS norm.
    pub rms_norm_eps: f64,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// The longest sequence, in tokens, that the model claims.
    pub max_position_embeddings: usize,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Whether attention projections have biases. Always false: such models are refused for now.
    pub attention_bias: bool,
    /// What each layer is.
    pub layer_types: Vec<LayerType>,
    /// Dimensions of linear attention layers; there exactly when `layer_types` has one.
    pub linear: Option<LinearConfig>,
    /// What tensor names start with: `model.`, or `model.language_model.` in the multimodal layout.
    pub tensor_prefix: String,
}

impl ModelConfig {
    /// Reads and checks the contents of a `config.json`; `path` is for error messages.
    pub fn parse(path: &Path, text: &[u8]) -> Result<ModelConfig, PackageError> {
        let root = object(path, text)?;
        let top = Fields {
            path,
            parent: "",
            map: &root,
        };
        let architecture = architecture(&top)?;
        let nested = match root.get("text_config") {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => return Err(top.error("text_config", other, "an object")),
        };
        let fields = match nested {
            Some(map) => Fields {
                path,
                parent: "text_config.",
                map,
            },
            None => Fields {
                path,
                parent: "",
                map: &root,
            },
        };
        refuse_unsupported(&top)?;
        refuse_unsupported(&fields)?;
        dimensions(architecture, &top, &fields)
    }

    /// Dimensions of a head that rotate; even, and at least 2.
    pub fn rotary_dim(&self) -> usize {
        // Checked at load to be a whole, even number, so that rounding only undoes float noise.
        (self.head_dim as f64 * self.rope.partial_rotary_factor).round() as usize
    }
}

/// A JSON object of a file, or the error that says why it isn't one.
pub(crate) fn object(path: &Path, text: &[u8]) -> Result<Map<String, Value>, PackageError> {
    let json = |message: String| PackageError::Json {
        path: path.to_path_buf(),
        message,
    };
    match serde_json::from_slice(text).map_err(|error| json(error.to_string()))? {
        Value::Object(map) => Ok(map),
        other => Err(json(format!(
            "{} where an object was expected",
            kind(&other)
        ))),
    }
}

/// The kind of a JSON value in words, with small values spelled out.
fn kind(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_string(),
        other => other.to_string(),
    }
}

/// One JSON object of a config file, with what error messages need.
pub(crate) struct Fields<'a> {
    pub(crate) path: &'a Path,
    pub(crate) parent: &'a str,
    pub(crate) map: &'a Map<String, Value>,
}

impl Fields<'_> {
    /// A field's value; `null` counts as absent, since that is how such files say so.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn error(&self, field: &str, value: &Value, expected: &str) -> PackageError {
        self.wrong(field, kind(value), expected)
    }

    fn wrong(&self, field: &str, value: impl ToString, expected: &str) -> PackageError {
        PackageError::Field {
            path: self.path.to_path_buf(),
            field: format!("{}{field}", self.parent),
            value: value.to_string(),
            expected: expected.to_string(),
        }
    }

    /// A whole number within `1..=max`, if the field is there.
    fn size_if(&self, field: &str, max: usize) -> Result<Option<usize>, PackageError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        match size {
            Some(size) if (1..=max).contains(&size) => Ok(Some(size)),
            _ => Err(self.error(field, value, &format!("a whole number from 1 to {max}"))),
        }
    }

    fn size(&self, field: &str, max: usize) -> Result<usize, PackageError> {
        self.size_if(field, max)?
            .ok_or_else(|| self.wrong(field, "absent", &format!("a whole number from 1 to {max}")))
    }

    /// A number within `min..=max`, if the field is there.
    pub(crate) fn number_if(
        &self,
        field: &str,
        min: f64,
        max: f64,
    ) -> Result<Option<f64>, PackageError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) if number >= min && number <= max => Ok(Some(number)),
            _ => Err(self.error(field, value, &format!("a number from {min} to {max}"))),
        }
    }

    pub(crate) fn flag_if(&self, field: &str) -> Result<Option<bool>, PackageError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.error(field, other, "true or false")),
        }
    }
}

fn architecture(top: &Fields<'_>) -> Result<Architecture, PackageError> {
    // A checkpoint with another head (a classifier, say) shares its model_type with the language
    // model.
    if let Some(Value::Array(classes)) = top.get("architectures") {
        for class in classes {
            let known = class.as_str().is_some_and(|class| {
                class.ends_with("ForCausalLM") || class.ends_with("ForConditionalGeneration")
            });
            if !known {
                let expected = "a class that ends in ForCausalLM or ForConditionalGeneration";
                return Err(top.error("architectures", class, expected));
            }
        }
    }
    match top.get("model_type") {
        Some(Value::String(name)) => match name.as_str() {
            "llama" => Ok(Architecture::Llama),
            "qwen3" => Ok(Architecture::Qwen3),
            "qwen3_5" | "qwen3_5_text" => Ok(Architecture::Qwen3_5),
            _ => Err(top.wrong("model_type", name, SUPPORTED_MODEL_TYPES)),
        },
        Some(other) => Err(top.error("model_type", other, SUPPORTED_MODEL_TYPES)),
        None => Err(top.wrong("model_type", "absent", SUPPORTED_MODEL_TYPES)),
    }
}

/// Refuses settings that would change the arithmetic and that no backend knows.
fn refuse_unsupported(fields: &Fields<'_>) -> Result<(), PackageError> {
    if let Some(value) = fields.get("quantization_config") {
        let expected = "absent: quantised checkpoints are not supported, use the bf16 or f16 one";
        return Err(fields.error("quantization_config", value, expected));
    }
    if let Some(value) = fields.get("hidden_act")
        && value.as_str() != Some("silu")
    {
        return Err(fields.error("hidden_act", value, "silu"));
    }
    for field in ["attention_bias", "mlp_bias"] {
        if fields.flag_if(field)? == Some(true) {
            return Err(fields.wrong(field, true, "false: biases are not supported"));
        }
    }
    if fields.flag_if("use_sliding_window")? == Some(true)
        && let Some(window) = fields.get("sliding_window")
    {
        let expected = "absent, or use_sliding_window false: windowed attention is not supported";
        return Err(fields.error("sliding_window", window, expected));
    }
    if fields.flag_if("attn_output_gate")? == Some(false) {
        return Err(fields.wrong("attn_output_gate", false, "true"));
    }
    Ok(())
}

// Long on purpose: one line per field, in the order of the struct.
fn dimensions(
    architecture: Architecture,
    top: &Fields<'_>,
    fields: &Fields<'_>,
) -> Result<ModelConfig, PackageError> {
    let hidden_size = fields.size("hidden_size", 1 << 16)?;
    let num_layers = fields.size("num_hidden_layers", 1024)?;
    let num_attention_heads = fields.size("num_attention_heads", 1024)?;
    let num_key_value_heads = fields
        .size_if("num_key_value_heads", 1024)?
        .unwrap_or(num_attention_heads);
    if !num_attention_heads.is_multiple_of(num_key_value_heads) {
        let expected = format!("a divisor of num_attention_heads, which is {num_attention_heads}");
        return Err(fields.wrong("num_key_value_heads", num_key_value_heads, &expected));
    }
    let head_dim = match fields.size_if("head_dim", 1024)? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(num_attention_heads) => {
            hidden_size / num_attention_heads
        }
        None => {
            let expected = format!(
                "a number, since num_attention_heads {num_attention_heads} doesn't divide \
                 hidden_size {hidden_size}"
            );
            return Err(fields.wrong("head_dim", "absent", &expected));
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(fields.wrong("head_dim", head_dim, "an even number"));
    }
    let rms_norm_eps = fields
        .number_if("rms_norm_eps", 1e-12, 1e-2)?
        .unwrap_or(1e-6);
    let rope = rope::rope(architecture, fields, head_dim)?;
    let tie_word_embeddings = match fields.flag_if("tie_word_embeddings")? {
        Some(tied) => tied,
        None => top.flag_if("tie_word_embeddings")?.unwrap_or(false),
    };
    let layer_types = layer_types(architecture, fields, num_layers)?;
    let linear = if layer_types.contains(&LayerType::LinearAttention) {
        Some(linear(fields)?)
    } else {
        None
    };
    Ok(ModelConfig {
        architecture,
        vocab_size: fields.size("vocab_size", 1 << 22)?,
        hidden_size,
        intermediate_size: fields.size("intermediate_size", 1 << 20)?,
        num_layers,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        rms_norm_eps,
        rope,
        max_position_embeddings: fields.size("max_position_embeddings", 1 << 30)?,
        tie_word_embeddings,
        attention_bias: false,
        layer_types,
        linear,
        tensor_prefix: "model.".to_string(),
    })
}

fn linear(fields: &Fields<'_>) -> Result<LinearConfig, PackageError> {
    let linear = LinearConfig {
        num_key_heads: fields.size("linear_num_key_heads", 1024)?,
        num_value_heads: fields.size("linear_num_value_heads", 1024)?,
        key_head_dim: fields.size("linear_key_head_dim", 1024)?,
        value_head_dim: fields.size("linear_value_head_dim", 1024)?,
        conv_kernel: fields.size("linear_conv_kernel_dim", 64)?,
    };
    if !linear.num_value_heads.is_multiple_of(linear.num_key_heads) {
        let expected = format!(
            "a multiple of linear_num_key_heads, {}",
            linear.num_key_heads
        );
        return Err(fields.wrong("linear_num_value_heads", linear.num_value_heads, &expected));
    }
    Ok(linear)
}

fn layer_types(
    architecture: Architecture,
    fields: &Fields<'_>,
    num_layers: usize,
) -> Result<Vec<LayerType>, PackageError> {
    let hybrid = architecture == Architecture::Qwen3_5;
    let Some(value) = fields.get("layer_types") else {
        let interval = match hybrid {
            true => fields
                .size_if("full_attention_interval", 1024)?
                .unwrap_or(4),
            false => 1,
        };
        let of = |layer: usize| match (layer + 1).is_multiple_of(interval) {
            true => LayerType::FullAttention,
            false => LayerType::LinearAttention,
        };
        return Ok((0..num_layers).map(of).collect());
    };
    let expected = format!("an array of {num_layers}, as num_hidden_layers says");
    let Value::Array(items) = value else {
        return Err(fields.error("layer_types", value, &expected));
    };
    if items.len() != num_layers {
        return Err(fields.error("layer_types", value, &expected));
    }
    let mut types = Vec::with_capacity(num_layers);
    for (layer, item) in items.iter().enumerate() {
        types.push(match item.as_str() {
            Some("full_attention") => LayerType::FullAttention,
            Some("linear_attention") if hybrid => LayerType::LinearAttention,
            _ => {
                let expected = match hybrid {
                    true => "full_attention or linear_attention",
                    false => "full_attention",
                };
                return Err(fields.error(&format!("layer_types[{layer}]"), item, expected));
            }
        });
    }
    Ok(types)
}
