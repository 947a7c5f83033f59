//! The models that the law is tried on, and how each is brought into a backend. It must never load a model
//! in a way that a server could not.

use super::{
    axes::{Ask, Axis, Constraint, DraftKind, Format, Rule, Sampling},
    llama,
    wish::Wish,
};
use crate::{backend::AnyBackend, cuda, exit::Failure, flags::CudaArgs, terminal::Bars};
use lockstep_core::Vocabulary;
use lockstep_cpu::{CpuBackend, CpuOptions, Isa, WeightRule};
use lockstep_cuda::{CudaOptions, Device};
use lockstep_fingerprint::{Drafting, Fingerprint, FingerprintConfig};
use lockstep_package::{LayerType, NoProgress, Package, PackageError, Special};
use lockstep_server::{
    ChatModel, ChatPrompt, ModelContract, ModelError, RequestReader, ServerConfig,
};
use lockstep_step::{BackendLimits, ModelDrafter, TokenId};
use lockstep_tags::TagFormat;
use serde_json::{Map, Value};
use std::{path::Path, sync::Arc};

/// The names of the models that are part of the program.
pub const BUILT_IN: [&str; 3] = ["embedded", "llama", "fingerprint"];

/// A model to try.
pub struct LawModel {
    /// As it is called in tables.
    pub name: String,
    /// Its tokens, as every engine has them.
    pub vocabulary: Arc<Vocabulary>,
    package: Arc<Package>,
    /// Models that may draft for it, the first of them itself.
    drafts: Vec<Arc<Package>>,
    is_fingerprint: bool,
    /// What computes in place of the CPU, but for the reference.
    device: Option<Device>,
    /// By [`Format`].
    readers: Vec<RequestReader>,
}

/// How much a backend may hold, and how it computes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Blocks of the KV cache.
    pub num_blocks: u32,
    /// Rows of recurrent state, where the model has any.
    pub num_rows: u32,
    /// Threads of the backend.
    pub num_threads: usize,
    /// Picks the instruction set.
    pub isa_pick: usize,
    /// Whether it is the reference that others are held against, and so the CPU whatever else there is.
    pub is_reference: bool,
    /// Whether a step is laid out in buffers of a few sizes.
    pub static_buffers: bool,
    /// Whether the checkpoint's own drafting head computes along, where there is one.
    pub mtp: bool,
    /// Picks the model that drafts; None is none.
    pub draft_pick: Option<usize>,
}

/// Query tokens of a step, at most, and tokens of a sequence.
pub const QUERY_TOKENS_MAX: u32 = 1024;

impl LawModel {
    /// One of the built-in models, or a Hugging Face folder or package.
    ///
    /// # Errors
    /// A folder that holds no model, or a package that an advisory refuses.
    pub fn open(name: &str, device: Option<&Device>) -> Result<LawModel, Failure> {
        let embedded = || Package::embedded().map_err(Failure::failed);
        let package = match name {
            "embedded" | "fingerprint" => embedded()?,
            "llama" => llama::package(&embedded()?)?,
            path => open_sound(Path::new(path)).map_err(|error| {
                let built_in = BUILT_IN.join(", ");
                let next = format!("expected a folder, a package, or one of {built_in}");
                Failure::input(error, next)
            })?,
        };
        let package = Arc::new(package);
        let reader = |format: &Format| {
            let model = InFormat {
                package: package.clone(),
                format: *format,
            };
            RequestReader::new(ServerConfig::new("law"), Arc::new(model))
        };
        // One that is always right, and for the model that has a smaller one beside it, one that never is.
        let mut drafts = vec![package.clone()];
        if name == "embedded" {
            drafts.push(Arc::new(llama::package(&package)?));
        }
        Ok(LawModel {
            drafts,
            name: match BUILT_IN.contains(&name) {
                true => name.to_owned(),
                false => package.name.clone(),
            },
            vocabulary: Arc::new(lockstep_server::vocabulary(package.as_ref())),
            is_fingerprint: name == "fingerprint",
            device: device.cloned(),
            readers: Format::ALL.iter().map(reader).collect(),
            package,
        })
    }

    /// What reads requests whose calls have this format.
    pub fn reader(&self, format: Format) -> &RequestReader {
        &self.readers[format as usize]
    }

    /// Text as tokens, without any that stand for structure.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let ids = self.package.tokenizer.encode(text, Special::None);
        ids.unwrap_or_default().into_iter().map(TokenId).collect()
    }

    /// Size of the vocabulary.
    pub fn vocab_size(&self) -> u32 {
        u32::try_from(self.package.contract.vocab_size).unwrap_or(u32::MAX)
    }

    /// Tokens that end an answer.
    pub fn end_tokens(&self) -> Vec<TokenId> {
        self.package.contract().end_tokens
    }

    /// Tokens that never appear as text.
    pub fn special_tokens(&self) -> Vec<TokenId> {
        let ids = (0..self.vocab_size()).map(TokenId);
        ids.filter(|id| self.package.tokenizer.is_special(id.0))
            .collect()
    }

    /// What it can't be tried with, as the model of this number.
    pub fn rules(&self, model: usize) -> Vec<Rule> {
        let mtp = DraftKind::ALL
            .iter()
            .position(|kind| *kind == DraftKind::Mtp);
        let rule = mtp.filter(|_| !self.has_mtp()).map(|mtp| Rule {
            values: vec![(Axis::Model, model as u8), (Axis::Drafter, mtp as u8)],
            why: format!(
                "{} has no head of its own that could draft: no mtp",
                self.name
            ),
        });
        let kinds = Format::ALL
            .iter()
            .enumerate()
            .flat_map(|(format_idx, &format)| {
                let constraints = Constraint::ALL.iter().enumerate();
                constraints.map(move |(idx, &constraint)| (format_idx, format, idx, constraint))
            });
        let refused = kinds.filter_map(|(format_idx, format, idx, constraint)| {
            let ask = Ask {
                sampling: Sampling::Greedy,
                constraint,
                format,
                length: 64,
            };
            let wish = Wish::new(self, ask, 0, 0);
            let failure = wish.and_then(|wish| wish.request(self)).err()?;
            Some(Rule {
                values: vec![
                    (Axis::Model, model as u8),
                    (Axis::Format, format_idx as u8),
                    (Axis::Constraint, idx as u8),
                ],
                why: failure.what,
            })
        });
        rule.into_iter().chain(refused).collect()
    }

    /// Whether its checkpoint has a head that drafts.
    pub fn has_mtp(&self) -> bool {
        self.is_fingerprint || self.package.has_mtp()
    }

    /// A backend that has computed nothing.
    ///
    /// # Errors
    /// Weights that can't be used.
    pub fn backend(&self, room: &Room) -> Result<AnyBackend, Failure> {
        if self.is_fingerprint {
            return Ok(AnyBackend::Fingerprint(Box::new(self.hashes(room))));
        }
        let draft = room
            .draft_pick
            .map(|pick| &*self.drafts[pick % self.drafts.len()]);
        if let Some(device) = self.device.as_ref().filter(|_| !room.is_reference) {
            return self.on_device(device, draft, room);
        }
        let options = CpuOptions {
            weights: WeightRule::Q8,
            num_threads: room.num_threads,
            isa: Some(self.isa(room.isa_pick)),
            num_blocks: room.num_blocks,
            num_rows: room.num_rows,
            query_tokens_max: QUERY_TOKENS_MAX,
            seq_len_max: Some(QUERY_TOKENS_MAX),
            mtp: room.mtp && self.has_mtp(),
            static_buffers: room.static_buffers,
        };
        let backend = CpuBackend::load_with_draft(&self.package, draft, &options, &NoProgress);
        let backend = backend.map_err(|error| Failure::input(error, ""))?;
        Ok(AnyBackend::Cpu(Box::new(backend)))
    }

    fn on_device(
        &self,
        device: &Device,
        draft: Option<&Package>,
        room: &Room,
    ) -> Result<AnyBackend, Failure> {
        let options = CudaOptions {
            num_blocks: room.num_blocks,
            num_rows: room.num_rows,
            query_tokens_max: QUERY_TOKENS_MAX,
            seq_len_max: Some(QUERY_TOKENS_MAX),
            mtp: room.mtp && self.has_mtp(),
            // Recorded steps have buffers of a few sizes.
            graph_rows: if room.static_buffers { 128 } else { 0 },
            ..cuda::options(&CudaArgs::default())
        };
        let models = (&*self.package, draft);
        let backend = cuda::load(device, models, &options, &NoProgress)?;
        Ok(AnyBackend::Cuda(Box::new(backend)))
    }

    /// Whether it has recurrent state.
    pub fn has_rows(&self) -> bool {
        let config = &self.package.config;
        self.is_fingerprint || config.layer_types.contains(&LayerType::LinearAttention)
    }

    /// The instruction set to try: any that the machine has, the scalar definition now and then, and only
    /// where it doesn't take minutes.
    fn isa(&self, pick: usize) -> Isa {
        let mut all = Isa::available();
        let is_tiny = self.package.config.hidden_size <= 64;
        if all.len() > 1 && !(is_tiny && pick.is_multiple_of(20)) {
            all.retain(|isa| *isa != Isa::Scalar);
        }
        all[pick % all.len()]
    }

    /// A model made of hashes, which wants to end, to call and to close now and then, and has no other wish.
    fn hashes(&self, room: &Room) -> Fingerprint {
        let mut config = FingerprintConfig::new(BackendLimits {
            vocab_size: self.vocab_size(),
            num_blocks: room.num_blocks,
            num_rows: room.num_rows,
            seq_len_max: QUERY_TOKENS_MAX,
            query_tokens_max: QUERY_TOKENS_MAX,
        });
        let pushed = [
            "</think>",
            "</tool_call>",
            "</arg_value>",
            "<tool_call>",
            "\"",
            "}",
            "\n",
            "</",
            ">",
        ];
        for tag in pushed {
            let ids = self.package.tokenizer.encode(tag, Special::Parse);
            let first = ids.ok().and_then(|ids| ids.first().copied());
            config.bias.extend(first.map(|id| (TokenId(id), 5.0)));
        }
        config.static_buffers = room.static_buffers;
        let drafting = |drafter, wrong_per_mille| Drafting {
            drafter,
            wrong_per_mille,
        };
        let mtp = room.mtp.then(|| drafting(ModelDrafter::Mtp, 200));
        // Always right, or wrong more often than not.
        let draft = |pick: usize| drafting(ModelDrafter::DraftModel, [0, 600][pick % 2]);
        config.drafters = mtp.into_iter().chain(room.draft_pick.map(draft)).collect();
        let ends = self.end_tokens().into_iter().map(|token| (token, 3.0));
        config.bias.extend(ends);
        config.bias.sort_by_key(|(token, _)| *token);
        config.bias.dedup_by_key(|(token, _)| *token);
        Fingerprint::new(config)
    }
}

fn open_sound(path: &Path) -> Result<Package, PackageError> {
    let package = Package::open(path, &Bars::default())?;
    package.check_advisories()?;
    Ok(package)
}

/// A package whose calls are written in another format than it says.
struct InFormat {
    package: Arc<Package>,
    format: Format,
}

impl ChatModel for InFormat {
    fn contract(&self) -> ModelContract {
        let format = match self.format {
            Format::Glm => TagFormat::Glm,
            Format::QwenXml => TagFormat::QwenXml,
            Format::HermesJson => TagFormat::HermesJson,
        };
        ModelContract {
            tag_format: format,
            ..self.package.contract()
        }
    }

    fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
    ) -> Result<ChatPrompt, ModelError> {
        ChatModel::encode_chat(self.package.as_ref(), messages, tools, kwargs)
    }

    fn encode_text(&self, text: &str, as_prompt: bool) -> Result<Vec<TokenId>, ModelError> {
        self.package.encode_text(text, as_prompt)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.package.token_bytes(token)
    }

    fn is_special(&self, token: TokenId) -> bool {
        ChatModel::is_special(self.package.as_ref(), token)
    }
}
