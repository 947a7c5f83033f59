//! Which tensors each architecture needs, by name and shape.
//!
//! A backend checks this table before it reads a single weight, and `lockstep inspect --verify`
//! checks it for the user. It must never list what an architecture merely tolerates: extra tensors
//! are reported, not needed.

use crate::config::{Architecture, LayerType, LinearConfig, ModelConfig};

/// A tensor without which the model can't run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredTensor {
    /// Its full name in the checkpoint.
    pub name: String,
    /// Its shape, outermost dimension first.
    pub shape: Vec<usize>,
}

/// All tensors that the model needs, in the order in which it uses them.
pub fn required_tensors(config: &ModelConfig) -> Vec<RequiredTensor> {
    let hidden = config.hidden_size;
    let mut table = Table {
        tensors: Vec::new(),
    };
    let prefix = &config.tensor_prefix;
    table.add(
        format!("{prefix}embed_tokens.weight"),
        &[config.vocab_size, hidden],
    );
    for (layer, layer_type) in config.layer_types.iter().enumerate() {
        let at = format!("{prefix}layers.{layer}.");
        table.add(format!("{at}input_layernorm.weight"), &[hidden]);
        match (layer_type, &config.linear) {
            (LayerType::LinearAttention, Some(linear)) => {
                table.linear_attention(&at, hidden, linear)
            }
            _ => table.full_attention(&at, config),
        }
        table.add(format!("{at}post_attention_layernorm.weight"), &[hidden]);
        table.mlp(&at, config);
    }
    table.add(format!("{prefix}norm.weight"), &[hidden]);
    if !config.tie_word_embeddings {
        table.add("lm_head.weight".to_string(), &[config.vocab_size, hidden]);
    }
    table.tensors
}

/// The tensors of the head that drafts tokens after the next (multi-token prediction), where the architecture
/// has a place for one. A checkpoint may come without.
pub fn mtp_tensors(config: &ModelConfig) -> Vec<RequiredTensor> {
    let mut table = Table {
        tensors: Vec::new(),
    };
    if config.architecture != Architecture::Qwen3_5 {
        return table.tensors;
    }
    let hidden = config.hidden_size;
    for norm in ["pre_fc_norm_embedding", "pre_fc_norm_hidden"] {
        table.add(format!("mtp.{norm}.weight"), &[hidden]);
    }
    table.add("mtp.fc.weight".to_string(), &[hidden, 2 * hidden]);
    let at = "mtp.layers.0.";
    table.add(format!("{at}input_layernorm.weight"), &[hidden]);
    table.full_attention(at, config);
    table.add(format!("{at}post_attention_layernorm.weight"), &[hidden]);
    table.mlp(at, config);
    table.add("mtp.norm.weight".to_string(), &[hidden]);
    table.tensors
}

struct Table {
    tensors: Vec<RequiredTensor>,
}

impl Table {
    fn add(&mut self, name: String, shape: &[usize]) {
        self.tensors.push(RequiredTensor {
            name,
            shape: shape.to_vec(),
        });
    }

    fn mlp(&mut self, at: &str, config: &ModelConfig) {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        self.add(format!("{at}mlp.gate_proj.weight"), &[inner, hidden]);
        self.add(format!("{at}mlp.up_proj.weight"), &[inner, hidden]);
        self.add(format!("{at}mlp.down_proj.weight"), &[hidden, inner]);
    }

    fn full_attention(&mut self, at: &str, config: &ModelConfig) {
        let hidden = config.hidden_size;
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        // Qwen3.5 projects each head's query and its output gate together.
        let query_rows = match config.architecture {
            Architecture::Qwen3_5 => 2 * queries,
            Architecture::Llama | Architecture::Qwen3 => queries,
        };
        self.add(
            format!("{at}self_attn.q_proj.weight"),
            &[query_rows, hidden],
        );
        self.add(format!("{at}self_attn.k_proj.weight"), &[keys, hidden]);
        self.add(format!("{at}self_attn.v_proj.weight"), &[keys, hidden]);
        self.add(format!("{at}self_attn.o_proj.weight"), &[hidden, queries]);
        match config.architecture {
            Architecture::Llama => {}
            Architecture::Qwen3 | Architecture::Qwen3_5 => {
                self.add(format!("{at}self_attn.q_norm.weight"), &[config.head_dim]);
                self.add(format!("{at}self_attn.k_norm.weight"), &[config.head_dim]);
            }
        }
    }

    fn linear_attention(&mut self, at: &str, hidden: usize, linear: &LinearConfig) {
        let keys = linear.num_key_heads * linear.key_head_dim;
        let values = linear.num_value_heads * linear.value_head_dim;
        let heads = linear.num_value_heads;
        // Queries, keys and values go through one convolution, each channel apart.
        let channels = 2 * keys + values;
        let at = format!("{at}linear_attn.");
        self.add(format!("{at}in_proj_qkv.weight"), &[channels, hidden]);
        self.add(format!("{at}in_proj_z.weight"), &[values, hidden]);
        self.add(format!("{at}in_proj_b.weight"), &[heads, hidden]);
        self.add(format!("{at}in_proj_a.weight"), &[heads, hidden]);
        self.add(
            format!("{at}conv1d.weight"),
            &[channels, 1, linear.conv_kernel],
        );
        self.add(format!("{at}A_log"), &[heads]);
        self.add(format!("{at}dt_bias"), &[heads]);
        self.add(format!("{at}norm.weight"), &[linear.value_head_dim]);
        self.add(format!("{at}out_proj.weight"), &[hidden, values]);
    }
}
