//! Shapes of models that a benchmark makes up. They must never be taken for checkpoints: only sizes are theirs.

use lockstep_package::ModelConfig;
use serde_json::json;
use std::path::Path;

/// A shape of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShapeKind {
    /// Llama 3 8B.
    #[value(name = "8b")]
    Llama8b,
    /// Llama 3.2 1B.
    #[value(name = "1b")]
    Llama1b,
    /// As small as can be, for trying the benchmark itself.
    Tiny,
}

impl ShapeKind {
    /// What a report calls a model of this shape.
    pub fn name(self) -> String {
        let size = match self {
            ShapeKind::Llama8b => "8b",
            ShapeKind::Llama1b => "1b",
            ShapeKind::Tiny => "tiny",
        };
        format!("random weights, shape {size}")
    }

    /// The configuration, as a checkpoint has it.
    pub fn config(self) -> ModelConfig {
        // Width, width of the MLP, layers, query heads, key heads, vocabulary, one matrix for both ends.
        let (hidden, mlp, layers, heads, key_heads, vocab, tied) = match self {
            ShapeKind::Llama8b => (4096, 14336, 32, 32, 8, 128_256, false),
            ShapeKind::Llama1b => (2048, 8192, 16, 32, 8, 128_256, true),
            ShapeKind::Tiny => (128, 384, 2, 4, 2, 512, false),
        };
        let config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": mlp,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_heads,
            "vocab_size": vocab,
            "tie_word_embeddings": tied,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
        });
        let text = config.to_string();
        ModelConfig::parse(Path::new("a shape of the benchmark"), text.as_bytes())
            .expect("a shape is a configuration, which a test holds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use lockstep_package::required_tensors;

    #[test]
    fn they_are_as_large_as_they_say() {
        let sizes = ShapeKind::value_variants().iter().map(|shape| {
            let tensors = required_tensors(&shape.config()).into_iter();
            let sizes = tensors.map(|tensor| tensor.shape.iter().product::<usize>());
            sizes.sum::<usize>()
        });
        let sizes: Vec<usize> = sizes.collect();
        assert_eq!(sizes[0], 8_030_261_248);
        assert_eq!(sizes[1], 1_235_814_400);
        assert!(sizes[2] < 1_000_000, "{}", sizes[2]);
    }
}
