//! The backend: plans in, draws out. It checks a plan, lays it out as rows, runs the model and samples. It
//! keeps blocks, rows and the last draws; it must never keep a sequence's tokens or guess its length.

use crate::batch::{Batch, Machine};
use crate::draft::{DraftModel, Drafters};
use crate::load::Loader;
use crate::model::{Memory, Model, Mtp, MtpMemory, Probe, Wanted, num_state_layers};
use crate::watch::Watch;
use crate::{Isa, Pool, WeightRule, kernels};
use lockstep_numerics::sampler::Sampler;
use lockstep_package::{LoadError, Package, Progress, ensure_range, ensure_same_vocabulary};
use lockstep_sampling::{DrawnTokens, sample_seq};
use lockstep_step::{
    Backend, BackendError, BackendLimits, LayoutShape, MaskSet, ModelDrafter, OpDigest, Proposal,
    ProposalPlan, SeqError, SeqId, SeqOutput, StepId, StepLayout, StepOutput, StepPlan, TokenId,
    admit_proposals, check_plan,
};
use std::collections::BTreeMap;

/// How a model is loaded and how much it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// How weights are held and products computed.
    pub weights: WeightRule,
    /// Threads that compute, at least 1.
    pub num_threads: usize,
    /// The instruction set; None is the best that the machine has.
    pub isa: Option<Isa>,
    /// Blocks of the KV cache, of 64 positions each.
    pub num_blocks: u32,
    /// Rows of recurrent state; ignored where the model has none.
    pub num_rows: u32,
    /// The most query tokens of one step.
    pub query_tokens_max: u32,
    /// The longest sequence in tokens, where it is to be shorter than the model's own.
    pub seq_len_max: Option<u32>,
    /// Load the checkpoint's own drafting head too. It computes along with every step, and changes no output.
    pub mtp: bool,
    /// Lay every step out in buffers of a few fixed sizes, as a captured graph would, with padding that is
    /// poisoned. Changes no output, and costs the time of the padding.
    pub static_buffers: bool,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions {
            weights: WeightRule::F32,
            num_threads: 1,
            isa: None,
            num_blocks: 64,
            num_rows: 64,
            query_tokens_max: 512,
            seq_len_max: None,
            mtp: false,
            static_buffers: false,
        }
    }
}

/// What a loaded model takes, in bytes, drafters included but for `weights`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Weights of the model that a decode step reads.
    pub weights: usize,
    /// Weights of models that draft.
    pub drafters: usize,
    /// All blocks together, once they have been used.
    pub blocks: usize,
    /// All rows together, once they have been used.
    pub rows: usize,
}

/// A model on the CPU.
pub struct CpuBackend {
    model: Model,
    memory: Memory,
    drafters: Drafters,
    limits: BackendLimits,
    isa: Isa,
    pool: Pool,
    sampler: Sampler,
    drawn: DrawnTokens,
    layout: StepLayout,
    // A buffer of logits to use again.
    spare: Vec<f32>,
    // Whether digests of operations are wanted, and those of steps that nobody has asked for yet.
    is_watched: bool,
    ops: BTreeMap<StepId, Vec<OpDigest>>,
}

/// A step between its phases: logits of its scored positions.
pub struct CpuForward {
    plan: StepPlan,
    // The query tokens of all sequences, none of them a reference any more.
    tokens: Vec<TokenId>,
    // (scored positions of all sequences, vocab_size), and padding
    logits: Vec<f32>,
    vocab_size: usize,
    errors: Vec<SeqErrors>,
}

/// What is wrong with a sequence, and from where on.
#[derive(Default)]
struct SeqErrors {
    // Per scored position.
    scored: Vec<Option<SeqError>>,
    // At the last position, scored or not.
    last: Option<SeqError>,
}

impl CpuForward {
    /// Logits of the scored positions, (scored, vocab_size), in the order of the plan. Rows of a sequence
    /// that has an error mean nothing.
    pub fn logits(&self) -> &[f32] {
        let num_scored: usize = self.plan.seqs.iter().map(|seq| seq.scored.len()).sum();
        &self.logits[..num_scored * self.vocab_size]
    }
}

impl CpuBackend {
    /// Packs a package's weights and sets memory aside.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape or holds something that is no number, or if an option is
    /// out of range.
    pub fn load(
        package: &Package,
        options: &CpuOptions,
        progress: &dyn Progress,
    ) -> Result<CpuBackend, LoadError> {
        CpuBackend::load_with_draft(package, None, options, progress)
    }

    /// The same, with a smaller model beside it that drafts. Blocks and rows are counted for both, so that
    /// each block and row takes more memory.
    ///
    /// # Errors
    /// As [`CpuBackend::load`], or if the two don't have the same vocabulary, or if only the draft model has
    /// recurrent state.
    pub fn load_with_draft(
        package: &Package,
        draft: Option<&Package>,
        options: &CpuOptions,
        progress: &dyn Progress,
    ) -> Result<CpuBackend, LoadError> {
        let config = &package.config;
        let (num_blocks, num_rows) = (options.num_blocks as usize, options.num_rows as usize);
        ensure_range("num_threads", options.num_threads, 1..=1024)?;
        ensure_range("num_blocks", num_blocks, 1..=1 << 24)?;
        ensure_range(
            "query_tokens_max",
            options.query_tokens_max as usize,
            1..=1 << 20,
        )?;
        let has_rows = num_state_layers(config) > 0;
        if has_rows {
            ensure_range("num_rows", num_rows, 2..=1 << 20)?;
        }
        let own_max = config.max_position_embeddings.min(u32::MAX as usize);
        let seq_len_max = match options.seq_len_max {
            Some(max) => own_max.min(max as usize),
            None => own_max,
        };
        let seq_len_max = seq_len_max.min(num_blocks * lockstep_step::BLOCK_LEN as usize);
        ensure_range("seq_len_max", seq_len_max, 1..=own_max)?;
        let loader = Loader::new(package, options.weights, options.mtp, progress)?;
        let model = Model::load(&loader, seq_len_max);
        let mtp = options.mtp.then(|| Mtp::load(&loader)).transpose();
        loader.finish();
        let (model, mtp) = (model?, mtp?);
        let limits = BackendLimits {
            vocab_size: model.vocab_size() as u32,
            num_blocks: options.num_blocks,
            num_rows: if has_rows { options.num_rows } else { 0 },
            seq_len_max: seq_len_max as u32,
            query_tokens_max: options.query_tokens_max,
        };
        let shape = match options.static_buffers {
            false => LayoutShape::Exact,
            true => LayoutShape::Fixed {
                query_tokens_max: limits.query_tokens_max,
                seq_len_max: limits.seq_len_max,
            },
        };
        let mut drafters = Drafters::new(shape);
        drafters.mtp = mtp.map(|mtp| (mtp, MtpMemory::new(config, num_blocks)));
        if let Some(draft) = draft {
            ensure_same_vocabulary(package, draft)?;
            let loader = Loader::new(draft, options.weights, false, progress)?;
            let loaded = DraftModel::load(&loader, &limits);
            loader.finish();
            drafters.draft_model = Some(loaded?);
        }
        let isa = options.isa.unwrap_or_else(Isa::detect);
        Ok(CpuBackend {
            limits,
            memory: Memory::new(config, num_blocks, num_rows),
            drafters,
            model,
            isa,
            pool: Pool::new(options.num_threads),
            sampler: Sampler::at(kernels::level(isa)),
            drawn: DrawnTokens::default(),
            layout: StepLayout::new(shape),
            spare: Vec::new(),
            is_watched: false,
            ops: BTreeMap::new(),
        })
    }

    /// Everything that is kept between steps: blocks and rows, of drafters too.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> Vec<f32> {
        let own = self.memory.contents();
        own.chain(self.drafters.contents()).collect()
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// What the model takes, in bytes.
    pub fn memory_use(&self) -> MemoryUse {
        let [drafters, blocks, rows] = self.drafters.num_bytes();
        MemoryUse {
            weights: self.model.num_bytes(),
            drafters,
            blocks: self.memory.cache.num_bytes() + blocks,
            rows: self.memory.rows.num_bytes() + rows,
        }
    }

    /// Runs a plan and returns what an oracle can be compared with: all logits and the hidden states. Blocks
    /// and rows are written as by [`Backend::forward`].
    ///
    /// # Errors
    /// If the plan is refused, or a sequence fails: its error in words.
    pub fn forward_probed(&mut self, plan: &StepPlan) -> Result<Probe, BackendError> {
        let (tokens, unresolved) = self.admit(plan)?;
        let selected: Vec<u32> = (0..tokens.len() as u32).collect();
        let mut probe = Probe::default();
        let mut logits = vec![0.0; selected.len() * self.model.vocab_size()];
        let mut layout = std::mem::take(&mut self.layout);
        layout.lay_out(&plan.seqs, &tokens);
        let batch = Batch::new(&layout);
        let watch = self.run(&batch, (&selected, &mut logits), Some(&mut probe));
        let last_rows = (0..plan.seqs.len()).map(|seq_idx| batch.rows(seq_idx).end - 1);
        let faulty = last_rows.filter_map(|row| watch.error_at(&batch, row));
        let error = unresolved.into_iter().flatten().chain(faulty).next();
        self.layout = layout;
        if let Some(error) = error {
            return Err(BackendError::Device(error.to_string()));
        }
        probe.logits = logits;
        Ok(probe)
    }

    /// Checks a plan and finds the token of every query token; a sequence that refers to a draw which this
    /// backend did not make gets an error.
    fn admit(
        &self,
        plan: &StepPlan,
    ) -> Result<(Vec<TokenId>, Vec<Option<SeqError>>), BackendError> {
        check_plan(plan, &self.limits).map_err(BackendError::Refused)?;
        let mut tokens = Vec::with_capacity(plan.num_query_tokens());
        let mut errors = Vec::with_capacity(plan.seqs.len());
        for seq in &plan.seqs {
            let (query, refused) = self.drawn.resolve(seq);
            tokens.extend(query);
            errors.push(refused.map(SeqError::Refused));
        }
        Ok((tokens, errors))
    }

    fn run(
        &mut self,
        batch: &Batch<'_>,
        (selected, logits): (&[u32], &mut [f32]),
        mut probe: Option<&mut Probe>,
    ) -> Watch {
        let mut watch = Watch::of(batch).with_digests(self.is_watched);
        let machine = Machine {
            isa: self.isa,
            pool: &self.pool,
        };
        let wanted = Wanted {
            selected,
            logits,
            probe: probe.as_deref_mut(),
        };
        self.model
            .forward(machine, batch, &mut self.memory, &mut watch, wanted);
        let model = (&self.model, &self.memory);
        self.drafters.mirror(machine, model, batch, probe);
        watch
    }
}

impl Backend for CpuBackend {
    type Forward = CpuForward;
    type Sampled = StepOutput;

    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<CpuForward, BackendError> {
        let (tokens, unresolved) = self.admit(plan)?;
        let mut layout = std::mem::take(&mut self.layout);
        layout.lay_out(&plan.seqs, &tokens);
        let batch = Batch::new(&layout);
        let mut logits = std::mem::take(&mut self.spare);
        logits.resize(layout.scored().len() * self.model.vocab_size(), 0.0);
        let watch = self.run(&batch, (layout.scored(), &mut logits), None);
        let errors = unresolved.into_iter().enumerate();
        let errors = errors.map(|(seq_idx, unresolved)| {
            let (rows, scored) = (batch.rows(seq_idx), &plan.seqs[seq_idx].scored);
            let error_at = |row| unresolved.clone().or_else(|| watch.error_at(&batch, row));
            let rows_scored = scored
                .iter()
                .map(|scored| rows.start + scored.query_idx as usize);
            SeqErrors {
                scored: rows_scored.map(error_at).collect(),
                last: error_at(rows.end - 1),
            }
        });
        let errors = errors.collect();
        if self.is_watched {
            let seqs: Vec<SeqId> = plan.seqs.iter().map(|seq| seq.seq).collect();
            self.ops.insert(plan.step, watch.digests(&batch, &seqs));
        }
        self.layout = layout;
        Ok(CpuForward {
            tokens,
            plan: plan.clone(),
            logits,
            vocab_size: self.model.vocab_size(),
            errors,
        })
    }

    fn draw(&mut self, forward: CpuForward, masks: &MaskSet) -> Result<StepOutput, BackendError> {
        let CpuForward {
            plan,
            tokens,
            logits,
            errors,
            ..
        } = forward;
        check_masks(&plan, masks)?;
        let vocab_size = self.model.vocab_size();
        let (mut tokens, mut rows) = (&tokens[..], &logits[..]);
        let mut seqs = Vec::with_capacity(plan.seqs.len());
        for (seq, error) in plan.seqs.iter().zip(errors) {
            let own_tokens;
            (own_tokens, tokens) = tokens.split_at(seq.query.len());
            let own_rows;
            (own_rows, rows) = rows.split_at(seq.scored.len() * vocab_size);
            let logits_of = |idx: usize| match &error.scored[idx] {
                Some(error) => Err(error.clone()),
                None => Ok(&own_rows[idx * vocab_size..(idx + 1) * vocab_size]),
            };
            let draws = match error.last {
                // Nothing is drawn here, so that the error would otherwise be lost.
                Some(ref error) if seq.scored.is_empty() => Err(error.clone()),
                _ => sample_seq(&mut self.sampler, seq, own_tokens, logits_of, masks),
            };
            seqs.push(SeqOutput {
                seq: seq.seq,
                draws,
            });
        }
        self.drawn.keep(plan.step, &seqs);
        self.spare = logits;
        Ok(StepOutput {
            step: plan.step,
            seqs,
        })
    }

    fn collect(&mut self, sampled: StepOutput) -> Result<StepOutput, BackendError> {
        Ok(sampled)
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.drafters.has(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        admit_proposals(plan, &self.limits, |drafter| self.has_drafter(drafter))?;
        let machine = Machine {
            isa: self.isa,
            pool: &self.pool,
        };
        let sampler = &mut self.sampler;
        Ok(self.drafters.propose(machine, &self.model, sampler, plan))
    }

    fn watch_ops(&mut self, on: bool) -> bool {
        self.is_watched = on;
        self.ops.clear();
        true
    }

    fn take_ops(&mut self, step: StepId) -> Vec<OpDigest> {
        let later = self.ops.split_off(&StepId(step.0 + 1));
        let mut earlier = std::mem::replace(&mut self.ops, later);
        earlier.remove(&step).unwrap_or_default()
    }
}

/// Fails unless there are as many mask rows as the plan names.
fn check_masks(plan: &StepPlan, masks: &MaskSet) -> Result<(), BackendError> {
    if masks.rows.len() == plan.num_mask_rows as usize {
        return Ok(());
    }
    Err(BackendError::Device(format!(
        "{} mask rows, expected {}",
        masks.rows.len(),
        plan.num_mask_rows
    )))
}
