//! What a model is made of, as data: which pieces each layer has, how the tensors of each are called, and how a
//! matrix may be cut. Backends build from it what they compute with. It must never say how anything is computed.

use crate::config::{Architecture, LayerType, LinearConfig, ModelConfig, RopeScaling};
use lockstep_numerics::rotary::{Rotary, RotaryScaling};

/// A matrix whose outputs are those of the named tensors, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixPart {
    /// The tensors, each (outputs, inputs).
    pub names: Vec<String>,
    /// Whether its inputs would be split between tensor-parallel ranks. The sum is then cut into shards, so that
    /// every degree of parallelism agrees.
    pub row_parallel: bool,
    /// Whether it follows the f32 rule, whatever the other matrices follow.
    pub always_f32: bool,
}

impl MatrixPart {
    fn new(names: &[String]) -> MatrixPart {
        MatrixPart {
            names: names.to_vec(),
            row_parallel: false,
            always_f32: false,
        }
    }
}

/// The weight of an RMS norm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormPart {
    /// The tensor.
    pub name: String,
    /// Stored around zero: what is used is `1 + w`, computed once in float32.
    pub zero_centred: bool,
}

/// Softmax attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionParts {
    /// Outputs: per query head its query (and its gate), then keys, then values.
    pub qkv: MatrixPart,
    /// Back to the width of the model.
    pub out: MatrixPart,
    /// Norms of each head's queries and of its keys.
    pub head_norms: Option<[NormPart; 2]>,
    /// A sigmoid gate per output, projected next to each head's query.
    pub gated: bool,
    /// Positions at the beginning of a sequence that have no entry: only their own query sees them.
    pub num_skipped: usize,
}

/// A gated delta net.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaNetParts {
    /// Its dimensions.
    pub dims: LinearConfig,
    /// Outputs: queries, keys, values (the channels of the convolution), z.
    pub project: MatrixPart,
    /// Outputs: b, a. By the f32 rule always: decays feed back token by token, and these are few rows.
    pub gates: MatrixPart,
    /// Back to the width of the model.
    pub out: MatrixPart,
    /// The norm of each head's output. Its weight is never around zero.
    pub norm: NormPart,
    /// (channels, 1, taps), oldest tap first.
    pub conv: String,
    /// Logarithms of the decay rates, per value head.
    pub log_rate: String,
    /// Added to `a`, per value head.
    pub bias: String,
}

/// What a layer mixes tokens with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MixerParts {
    /// Softmax attention.
    Attention(AttentionParts),
    /// A gated delta net.
    DeltaNet(DeltaNetParts),
}

/// One layer: `x += mixer(norm(x))`, then `x += down(silu(gate(norm(x))) * up(norm(x)))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerParts {
    /// Its index among the layers with the same kind of mixer: where what it keeps lies.
    pub place: usize,
    /// Before the mixer.
    pub mixer_norm: NormPart,
    /// The mixer.
    pub mixer: MixerParts,
    /// Before the MLP.
    pub mlp_norm: NormPart,
    /// Outputs: gates, then ups.
    pub gate_up: MatrixPart,
    /// Back to the width of the model.
    pub down: MatrixPart,
}

impl LayerParts {
    /// Its matrices.
    fn matrices(&self) -> impl Iterator<Item = &MatrixPart> {
        let (first, rest) = match &self.mixer {
            MixerParts::Attention(parts) => (&parts.qkv, vec![&parts.out]),
            MixerParts::DeltaNet(parts) => (&parts.project, vec![&parts.gates, &parts.out]),
        };
        [first, &self.gate_up, &self.down].into_iter().chain(rest)
    }
}

/// The head that drafts tokens after the next; embedding and output matrix are the model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MtpParts {
    /// Of the embedding of a token.
    pub token_norm: NormPart,
    /// Of what the model made of the token before it.
    pub hidden_norm: NormPart,
    /// Inputs: a token, then what was made of the one before.
    pub fc: MatrixPart,
    /// Its one layer.
    pub layer: LayerParts,
    /// After it.
    pub norm: NormPart,
}

/// A whole model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blueprint {
    /// (vocab_size, hidden)
    pub embedding: String,
    /// In order.
    pub layers: Vec<LayerParts>,
    /// After the last layer.
    pub final_norm: NormPart,
    /// (vocab_size, hidden)
    pub head: MatrixPart,
    /// Where the architecture has a place for one. A checkpoint may come without.
    pub mtp: Option<MtpParts>,
}

impl Blueprint {
    /// The parts of the model that a configuration names.
    pub fn of(config: &ModelConfig) -> Blueprint {
        let names = Names { config };
        let prefix = &config.tensor_prefix;
        let embedding = format!("{prefix}embed_tokens.weight");
        let head = match config.tie_word_embeddings {
            true => embedding.clone(),
            false => "lm_head.weight".to_string(),
        };
        let (mut num_attention, mut num_delta) = (0, 0);
        let layers = config.layer_types.iter().enumerate();
        let layers = layers.map(|(layer, layer_type)| {
            let at = format!("{prefix}layers.{layer}.");
            let (mixer, count) = match (layer_type, config.linear) {
                (LayerType::LinearAttention, Some(dims)) => {
                    let mixer = MixerParts::DeltaNet(names.delta_net(&at, dims));
                    (mixer, &mut num_delta)
                }
                _ => {
                    let mixer = MixerParts::Attention(names.attention(&at, 0));
                    (mixer, &mut num_attention)
                }
            };
            *count += 1;
            names.layer(&at, mixer, *count - 1)
        });
        Blueprint {
            layers: layers.collect(),
            embedding,
            final_norm: names.norm(format!("{prefix}norm.weight")),
            head: MatrixPart::new(&[head]),
            mtp: (config.architecture == Architecture::Qwen3_5).then(|| names.mtp()),
        }
    }

    /// The tensors of the matrices that follow the q8 rule where a model is quantised, with those of the drafting
    /// head or without.
    pub fn quantised(&self, with_mtp: bool) -> impl Iterator<Item = &str> {
        let mtp = self.mtp.iter().filter(move |_| with_mtp);
        let of_mtp = mtp.clone().map(|mtp| &mtp.fc);
        let layers = self.layers.iter().chain(mtp.map(|mtp| &mtp.layer));
        let in_layers = layers.flat_map(LayerParts::matrices);
        std::iter::once(&self.head)
            .chain(of_mtp)
            .chain(in_layers)
            .filter(|matrix| !matrix.always_f32)
            .flat_map(|matrix| matrix.names.iter().map(String::as_str))
    }

    /// Layers that keep recurrent state.
    pub fn num_state_layers(&self) -> usize {
        let keeps = |layer: &&LayerParts| matches!(layer.mixer, MixerParts::DeltaNet(_));
        self.layers.iter().filter(keeps).count()
    }
}

/// How the tensors of an architecture are called.
struct Names<'a> {
    config: &'a ModelConfig,
}

impl Names<'_> {
    fn norm(&self, name: String) -> NormPart {
        NormPart {
            name,
            zero_centred: self.config.architecture == Architecture::Qwen3_5,
        }
    }

    fn layer(&self, at: &str, mixer: MixerParts, place: usize) -> LayerParts {
        let mlp = |name: &str| format!("{at}mlp.{name}.weight");
        LayerParts {
            place,
            mixer_norm: self.norm(format!("{at}input_layernorm.weight")),
            mixer,
            mlp_norm: self.norm(format!("{at}post_attention_layernorm.weight")),
            gate_up: MatrixPart::new(&[mlp("gate_proj"), mlp("up_proj")]),
            down: MatrixPart {
                row_parallel: true,
                ..MatrixPart::new(&[mlp("down_proj")])
            },
        }
    }

    fn attention(&self, at: &str, num_skipped: usize) -> AttentionParts {
        let name = |name: &str| format!("{at}self_attn.{name}.weight");
        let has_head_norms = self.config.architecture != Architecture::Llama;
        AttentionParts {
            qkv: MatrixPart::new(&[name("q_proj"), name("k_proj"), name("v_proj")]),
            out: MatrixPart {
                row_parallel: true,
                ..MatrixPart::new(&[name("o_proj")])
            },
            head_norms: has_head_norms
                .then(|| ["q_norm", "k_norm"].map(|which| self.norm(name(which)))),
            gated: self.config.architecture == Architecture::Qwen3_5,
            num_skipped,
        }
    }

    fn delta_net(&self, at: &str, dims: LinearConfig) -> DeltaNetParts {
        let name = |name: &str| format!("{at}linear_attn.{name}");
        let inputs = |parts: [&str; 2]| parts.map(|part| name(&format!("in_proj_{part}.weight")));
        DeltaNetParts {
            dims,
            project: MatrixPart::new(&inputs(["qkv", "z"])),
            gates: MatrixPart {
                always_f32: true,
                ..MatrixPart::new(&inputs(["b", "a"]))
            },
            out: MatrixPart {
                row_parallel: true,
                ..MatrixPart::new(&[name("out_proj.weight")])
            },
            norm: NormPart {
                name: name("norm.weight"),
                zero_centred: false,
            },
            conv: name("conv1d.weight"),
            log_rate: name("A_log"),
            bias: name("dt_bias"),
        }
    }

    fn mtp(&self) -> MtpParts {
        let norm = |name: &str| self.norm(format!("mtp.{name}.weight"));
        let at = "mtp.layers.0.";
        // Position 0 has nothing before it, and so no entry.
        let mixer = MixerParts::Attention(self.attention(at, 1));
        MtpParts {
            token_norm: norm("pre_fc_norm_embedding"),
            hidden_norm: norm("pre_fc_norm_hidden"),
            fc: MatrixPart::new(&["mtp.fc.weight".to_string()]),
            layer: self.layer(at, mixer, 0),
            norm: norm("norm"),
        }
    }
}

/// The rotary frequencies of a configuration.
pub fn rotary(config: &ModelConfig) -> Rotary {
    let scaling = match config.rope.scaling {
        RopeScaling::None => RotaryScaling::Default,
        RopeScaling::Linear { factor } => RotaryScaling::Linear { factor },
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => RotaryScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings: original_max_position_embeddings as f64,
        },
    };
    Rotary::new(config.rope.theta, config.rotary_dim(), scaling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Package;
    use crate::architecture::{mtp_tensors, required_tensors};
    use std::collections::BTreeSet;

    fn matrices<'a>(layer: &'a LayerParts, names: &mut Vec<&'a str>) {
        let NormPart { name, .. } = &layer.mixer_norm;
        names.extend([name.as_str(), &layer.mlp_norm.name]);
        let mut add = |part: &'a MatrixPart| names.extend(part.names.iter().map(String::as_str));
        add(&layer.gate_up);
        add(&layer.down);
        match &layer.mixer {
            MixerParts::Attention(parts) => {
                add(&parts.qkv);
                add(&parts.out);
                let norms = parts.head_norms.iter().flatten();
                names.extend(norms.map(|norm| norm.name.as_str()));
            }
            MixerParts::DeltaNet(parts) => {
                add(&parts.project);
                add(&parts.gates);
                add(&parts.out);
                names.extend([parts.norm.name.as_str(), &parts.conv, &parts.log_rate]);
                names.push(&parts.bias);
            }
        }
    }

    #[test]
    fn it_names_the_tensors_that_are_required_and_no_others() {
        let package = Package::embedded().expect("the embedded model");
        let config = &package.config;
        let parts = Blueprint::of(config);
        let mut names = vec![parts.embedding.as_str(), &parts.final_norm.name];
        names.extend(parts.head.names.iter().map(String::as_str));
        for layer in &parts.layers {
            matrices(layer, &mut names);
        }
        let mtp = parts.mtp.as_ref().expect("a place for a head that drafts");
        names.extend([mtp.token_norm.name.as_str(), &mtp.hidden_norm.name]);
        names.extend([mtp.norm.name.as_str(), &mtp.fc.names[0]]);
        matrices(&mtp.layer, &mut names);
        let required = required_tensors(config).into_iter();
        let required = required
            .chain(mtp_tensors(config))
            .map(|tensor| tensor.name);
        let required: BTreeSet<String> = required.collect();
        let names: BTreeSet<String> = names.into_iter().map(str::to_string).collect();
        assert!(names.len() > 20, "{} names", names.len());
        assert_eq!(names, required);
    }

    #[test]
    fn quantised_are_all_matrices_but_gates() {
        let package = Package::embedded().expect("the embedded model");
        let parts = Blueprint::of(&package.config);
        let found: BTreeSet<String> = parts.quantised(true).map(str::to_string).collect();
        let tensors = required_tensors(&package.config).into_iter();
        let matrices = tensors
            .chain(mtp_tensors(&package.config))
            .filter(|tensor| {
                let is_gate = ["in_proj_a.weight", "in_proj_b.weight"];
                tensor.shape.len() == 2 && !is_gate.iter().any(|gate| tensor.name.ends_with(gate))
            });
        // The embedding is tied: it is the head's matrix.
        let expected: BTreeSet<String> = matrices.map(|tensor| tensor.name).collect();
        assert_eq!(found, expected);
        let without: BTreeSet<&str> = parts.quantised(false).collect();
        assert!(without.len() < found.len());
        assert!(without.iter().all(|name| !name.starts_with("mtp.")));
    }
}
