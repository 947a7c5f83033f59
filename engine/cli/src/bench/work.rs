//! What a model costs: bytes that one token reads and operations that it takes, counted from the shapes of
//! its matrices. It must never be measured: it is what measurements are compared with.

use crate::flags::WeightsKind;
use lockstep_package::{ModelConfig, required_tensors};

/// Weights of a group share one scale.
const GROUP_LEN: usize = 128;

/// The cost of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Bytes of weights that a decoded token reads, once each.
    pub bytes: f64,
    /// Operations of a token whose logits are not needed.
    pub ops_without_head: f64,
    /// Operations of a token that is scored.
    pub ops: f64,
}

/// Counts the matrices that a token goes through.
pub fn count(config: &ModelConfig, weights: WeightsKind) -> Work {
    let mut layers = Cost::default();
    for tensor in required_tensors(config) {
        // Norms and the like are too small to count; the embedding is looked up, not multiplied by.
        let is_matrix = tensor.shape.len() == 2 && !tensor.name.ends_with("embed_tokens.weight");
        if is_matrix && tensor.name != "lm_head.weight" {
            layers.add(tensor.shape[0], tensor.shape[1], weights);
        }
    }
    let mut head = Cost::default();
    head.add(config.vocab_size, config.hidden_size, weights);
    Work {
        bytes: layers.bytes + head.bytes,
        ops_without_head: layers.ops,
        ops: layers.ops + head.ops,
    }
}

#[derive(Default)]
struct Cost {
    bytes: f64,
    ops: f64,
}

impl Cost {
    fn add(&mut self, outputs: usize, inputs: usize, weights: WeightsKind) {
        let bytes = match weights {
            WeightsKind::F32 => outputs * inputs * 4,
            WeightsKind::Q8 => outputs * inputs + outputs * inputs.div_ceil(GROUP_LEN) * 4,
        };
        self.bytes += bytes as f64;
        self.ops += (2 * outputs * inputs) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix() {
        let mut cost = Cost::default();
        cost.add(10, 130, WeightsKind::Q8);
        assert_eq!((cost.bytes, cost.ops), (1300.0 + 80.0, 2600.0));
        let mut cost = Cost::default();
        cost.add(10, 130, WeightsKind::F32);
        assert_eq!(cost.bytes, 5200.0);
    }
}
