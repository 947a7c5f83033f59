//! Flags that several commands share. It must never open or compute anything: what a flag means is
//! decided by the command that has it.

use crate::exit::Failure;
use clap::{Args, ValueEnum};
use lockstep_core::{EngineConfig, Speculation};
use lockstep_package::TagFormat;
use lockstep_step::{SamplingParams, TokenId};
use std::{path::PathBuf, thread};

/// Which model, and where from.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// A Hugging Face directory, a file that `lockstep pack` wrote, or org/name to fetch; without it the
    /// embedded model is used.
    #[arg(
        long,
        short = 'm',
        value_name = "DIR|FILE|ORG/NAME",
        env = "LOCKSTEP_MODEL"
    )]
    pub model: Option<String>,
    /// Branch, tag or commit of a model that is fetched.
    #[arg(long, value_name = "REV", default_value = "main")]
    pub revision: String,
    /// The hub to fetch from.
    #[arg(long, value_name = "URL", env = "HF_ENDPOINT")]
    pub hub_endpoint: Option<String>,
    /// Where fetched models are kept [default: the cache of other Hugging Face tools].
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// How the model writes tool calls: auto, none, or a tag format such as hermes_json
    /// [default: auto, as the package says].
    #[arg(long, value_name = "FORMAT", value_parser = tool_format)]
    pub tool_format: Option<ToolFormat>,
    /// Go on with a package that this advisory refuses; the name is in the refusal.
    #[arg(long, value_name = "NAME")]
    pub allow_advisory: Vec<String>,
}

/// Whose word is taken for how a model writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// The package's.
    Auto,
    /// The user's; `None` is none: whatever looks like a call is text.
    Given(Option<TagFormat>),
}

fn tool_format(name: &str) -> Result<ToolFormat, String> {
    let given = TagFormat::ALL
        .into_iter()
        .find(|format| format.as_str() == name);
    match (name, given) {
        ("auto", _) => Ok(ToolFormat::Auto),
        ("none", _) => Ok(ToolFormat::Given(None)),
        (_, Some(format)) => Ok(ToolFormat::Given(Some(format))),
        (_, None) => {
            let known: Vec<&str> = TagFormat::ALL.into_iter().map(TagFormat::as_str).collect();
            Err(format!("expected auto, none, {}", known.join(", ")))
        }
    }
}

/// What computes it, and how.
#[derive(Args, Clone, Debug)]
pub struct MachineArgs {
    /// What computes: a GPU or the CPU, which say the same bytes, or hashes in place of a model, for testing.
    #[arg(long, value_enum, default_value_t = BackendKind::Auto)]
    pub backend: BackendKind,
    /// int8 weights for serving, or weights as stored for comparing.
    #[arg(long, value_enum, default_value_t = WeightsKind::Q8)]
    pub weights: WeightsKind,
    /// Vector instructions; all give the same bytes.
    #[arg(long, value_enum, default_value_t = IsaKind::Auto)]
    pub isa: IsaKind,
    /// Threads that compute [default: one per core].
    #[arg(long, short = 't', value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Lay steps out in buffers of a few fixed sizes, as a GPU's graphs need them. Changes no byte; slower on a
    /// CPU, for finding bugs.
    #[arg(long)]
    pub static_buffers: bool,
    /// The GPU.
    #[command(flatten)]
    pub cuda: CudaArgs,
}

/// Which GPU computes, and how. Nothing of it changes a byte.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options for a GPU")]
pub struct CudaArgs {
    /// Its number, as the driver counts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
    /// Device memory to hold, in GiB [default: nine tenths of what is free].
    #[arg(long, value_name = "GIB")]
    pub device_memory_gib: Option<f64>,
    /// Steps of at most so many tokens are recorded as graphs and replayed; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub graph_rows: u32,
    /// Wait for each kernel, so that an error is that of the kernel which failed: slow, for finding bugs.
    #[arg(long)]
    pub blocking_launches: bool,
}

impl Default for CudaArgs {
    fn default() -> CudaArgs {
        CudaArgs {
            device: 0,
            device_memory_gib: None,
            graph_rows: 128,
            blocking_launches: false,
        }
    }
}

impl MachineArgs {
    /// Threads to compute with.
    pub fn num_threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.map_or_else(cores, |threads| threads as usize)
    }
}

/// How much the engine takes on at once.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Sequences that run at once.
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_num_seqs: u32,
    /// Tokens of one step.
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_num_batched_tokens: u32,
    /// The longest sequence, prompt and answer together [default: the model's].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(2..))]
    pub max_model_len: Option<u32>,
    /// Blocks of 64 tokens of the KV cache [default: as many as --kv-cache-gib holds].
    #[arg(long, value_name = "N", conflicts_with = "kv_cache_gib",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub kv_blocks: Option<u32>,
    /// Memory of the KV cache, in GiB [default: 1 on a CPU; on a GPU what --device-memory-gib leaves, if
    /// --max-num-seqs of the longest sequences could fill it].
    #[arg(long, value_name = "GIB")]
    pub kv_cache_gib: Option<f64>,
    /// Who proposes tokens to be checked together: off, or some of forced, suffix, ngram, mtp, draft_model, each
    /// with a depth where wanted, as in ngram,forced:7. Changes speed only.
    #[arg(long, value_name = "LIST", default_value_t = EngineConfig::default().speculation)]
    pub speculate: Speculation,
    /// Models that draft.
    #[command(flatten)]
    pub drafters: DrafterArgs,
    /// Compute every prompt anew, even where another began with the same tokens. Changes speed only.
    #[arg(long)]
    pub no_prefix_cache: bool,
    /// Plan the next step while one runs; auto does where the backend computes by itself meanwhile. Changes
    /// speed only.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = OverlapKind::Auto)]
    pub overlap: OverlapKind,
    /// What becomes of proposed tokens that a grammar rejects: trim cuts them off before they are computed, pad
    /// lets them stay. Changes speed only.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = RejectedKind::Trim)]
    pub rejected_drafts: RejectedKind,
    /// Check every plan against what was computed before it: slower, for finding bugs.
    #[arg(long)]
    pub checked: bool,
}

/// Which models draft, beside the model. They change speed only; each computes along with every step and keeps
/// blocks of its own.
#[derive(Args, Clone, Debug, Default)]
pub struct DrafterArgs {
    /// The checkpoint's own drafting head: auto loads it where --speculate names mtp, on also for requests
    /// that name it themselves, off never.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub mtp: MtpKind,
    /// A smaller model with the same tokenizer that drafts for this one: a Hugging Face directory, or a package.
    #[arg(long, value_name = "DIR|FILE")]
    pub draft_model: Option<PathBuf>,
}

/// When the checkpoint's own drafting head is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MtpKind {
    /// Where it drafts by default.
    #[default]
    Auto,
    /// Always; a checkpoint without one is an error.
    On,
    /// Never.
    Off,
}

impl EngineArgs {
    /// Whether the checkpoint's own drafting head is wanted.
    pub fn wants_mtp(&self) -> bool {
        match self.drafters.mtp {
            MtpKind::Auto => self.speculate.mtp > 0,
            MtpKind::On => true,
            MtpKind::Off => false,
        }
    }
}

/// How tokens are drawn. What is left out is the model's own default.
#[derive(Args, Clone, Debug)]
pub struct SamplingArgs {
    /// 0 takes the most likely token.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens that reach this probability; 1 keeps all.
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this times the most likely one.
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub min_p: Option<f32>,
    /// Subtracted from a token's logit for each time it was written.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub frequency_penalty: Option<f32>,
    /// Subtracted from the logit of every token that was written.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub presence_penalty: Option<f32>,
    /// Makes tokens that occurred less likely; 1 is off.
    #[arg(long, value_name = "X")]
    pub repetition_penalty: Option<f32>,
    /// The same seed gives the same text, anywhere [default: drawn, and printed with --json].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SamplingArgs {
    /// The parameters, where `defaults` says what was left out and `seed` what noise is keyed by.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn resolve(&self, defaults: SamplingParams, seed: u64) -> Result<SamplingParams, Failure> {
        let params = SamplingParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            repetition_penalty: self
                .repetition_penalty
                .unwrap_or(defaults.repetition_penalty),
            bias: Vec::<(TokenId, f32)>::new(),
            seed,
            top_logprobs: None,
        };
        let ranges = [
            ("temperature", params.temperature, 0.0, 100.0),
            // The smallest positive number: a share of nothing would keep no token.
            ("top-p", params.top_p, f32::MIN_POSITIVE, 1.0),
            ("min-p", params.min_p, 0.0, 1.0),
            ("frequency-penalty", params.frequency_penalty, -2.0, 2.0),
            ("presence-penalty", params.presence_penalty, -2.0, 2.0),
            ("repetition-penalty", params.repetition_penalty, 0.01, 100.0),
        ];
        for (name, value, min, max) in ranges {
            // Written this way round so that NaN is refused too.
            if !(value >= min && value <= max) {
                return Err(Failure::usage(
                    format!("--{name} is {value}"),
                    format!("give a number from {min} to {max}"),
                ));
            }
        }
        Ok(params)
    }
}

/// What computes a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendKind {
    /// The best that this machine has: a GPU, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, by CUDA.
    Cuda,
    /// A model made of hashes: no weights, no meaning, for testing everything around it.
    Fingerprint,
}

/// When the next step is planned while one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverlapKind {
    /// Where that is of use.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What becomes of drafts that a grammar rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RejectedKind {
    /// They are cut off before the step, where that can be known by then.
    Trim,
    /// They stay, and are never drawn.
    Pad,
}

/// How weights are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsKind {
    /// As stored, widened to 32-bit floats.
    F32,
    /// int8 with one scale per row and group of 128.
    Q8,
}

impl WeightsKind {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WeightsKind::F32 => "f32",
            WeightsKind::Q8 => "q8",
        }
    }
}

/// Which vector instructions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsaKind {
    /// The widest that this machine has.
    Auto,
    /// None: the definition, slowly.
    Scalar,
    /// AVX2.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> SamplingArgs {
        SamplingArgs {
            temperature: None,
            top_k: None,
            top_p: None,
            min_p: None,
            frequency_penalty: None,
            presence_penalty: None,
            repetition_penalty: None,
            seed: None,
        }
    }

    #[test]
    fn defaults_fill_in() {
        let defaults = SamplingParams {
            top_k: 7,
            ..SamplingParams::greedy()
        };
        let given = SamplingArgs {
            temperature: Some(0.5),
            ..args()
        };
        let params = given.resolve(defaults, 9).expect("in range");
        assert_eq!((params.temperature, params.top_k, params.seed), (0.5, 7, 9));
    }

    #[test]
    fn tool_formats_are_named_as_the_parser_names_them() {
        assert_eq!(tool_format("auto"), Ok(ToolFormat::Auto));
        for format in lockstep_tags::TagFormat::ALL {
            let Ok(ToolFormat::Given(given)) = tool_format(format.as_str()) else {
                panic!("{format} is no flag");
            };
            assert_eq!(lockstep_server::tag_format(given), format);
        }
        let error = tool_format("xml").expect_err("no format");
        assert!(
            error.starts_with("expected auto, none, glm, qwen_xml"),
            "{error}"
        );
    }

    #[test]
    fn out_of_range_is_usage() {
        let bad = [
            SamplingArgs {
                temperature: Some(-0.1),
                ..args()
            },
            SamplingArgs {
                temperature: Some(f32::NAN),
                ..args()
            },
            SamplingArgs {
                top_p: Some(0.0),
                ..args()
            },
            SamplingArgs {
                top_p: Some(1.5),
                ..args()
            },
            SamplingArgs {
                presence_penalty: Some(3.0),
                ..args()
            },
        ];
        for args in bad {
            let failure = args
                .resolve(SamplingParams::greedy(), 0)
                .expect_err("out of range");
            assert_eq!(failure.exit, crate::exit::Exit::Usage, "{failure:?}");
            assert!(failure.next.contains("give a number from"), "{failure:?}");
        }
    }
}
