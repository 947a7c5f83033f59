//! What the sampler on the device is told, and what it says: one entry per scored position. Logits, masks and counts
//! stay on the device; what comes back is a few numbers per position.

use crate::CudaError;
use crate::device::Device;
use crate::memory::{Memory, Pinned, Ptr, Region};
use crate::ops::draw::{
    DRAWN, DrawParams, DrawTokens, NOT_FINITE, NOTHING_ALLOWED, TokenBias, TokenCount,
    UNKNOWN_TOKEN,
};
use crate::ops::logprobs::{Logprobs, TOP_LOGPROBS_MAX};
use crate::queue::Queue;
use bytemuck::Pod;
use lockstep_numerics::sampler::DrawError;
use lockstep_sampling::{ProposalDraws, sampler_params};
use lockstep_step::{Bitmask, NO_ID, Pos, QueryToken, SeqPlan, TokenId};

/// A list that grows on the host and is copied to the device as a whole.
struct List<T: Pod> {
    pinned: Pinned<T>,
    device: Ptr<T>,
    len: usize,
}

impl<T: Pod> List<T> {
    fn new(
        device: &Device,
        memory: &mut Memory,
        what: &str,
        len: usize,
    ) -> Result<List<T>, CudaError> {
        Ok(List {
            pinned: Pinned::zeroed(device, len)?,
            device: memory.claim(Region::Buffers, what, len)?,
            len: 0,
        })
    }

    /// Whether there is room for so many more.
    fn has_room(&self, num_more: usize) -> bool {
        self.len + num_more <= self.pinned.len()
    }

    /// Adds values; where they begin.
    fn push(&mut self, values: impl ExactSizeIterator<Item = T>) -> u32 {
        let at = self.len;
        self.len += values.len();
        for (to, value) in self.pinned.values_mut()[at..self.len]
            .iter_mut()
            .zip(values)
        {
            *to = value;
        }
        at as u32
    }

    fn upload(&self, queue: &Queue, what: &str) -> Result<(), CudaError> {
        if self.len > 0 {
            queue.upload(what, &self.pinned, 0..self.len, self.device)?;
        }
        Ok(())
    }
}

/// What is drawn at once: parameters, lists and masks of some positions.
pub(crate) struct DrawRequest {
    params: List<DrawParams>,
    counts: List<TokenCount>,
    biases: List<TokenBias>,
    extras: List<u32>,
    masks: List<u32>,
    edited: Ptr<f32>,
    vocab: usize,
}

/// Counts, biases and rows that are counted, of all positions together. A position that needs more is told so.
const LIST_MAX: usize = 1 << 18;

impl DrawRequest {
    pub(crate) fn new(
        device: &Device,
        memory: &mut Memory,
        (num_positions, vocab): (usize, usize),
    ) -> Result<DrawRequest, CudaError> {
        let mask_words = num_positions * vocab.div_ceil(32);
        Ok(DrawRequest {
            params: List::new(device, memory, "sampling parameters", num_positions)?,
            counts: List::new(device, memory, "token counts", LIST_MAX)?,
            biases: List::new(device, memory, "biases", LIST_MAX)?,
            extras: List::new(device, memory, "rows that count", LIST_MAX)?,
            masks: List::new(device, memory, "masks", mask_words)?,
            edited: memory.claim(Region::Buffers, "edited logits", num_positions * vocab)?,
            vocab,
        })
    }

    /// Nothing asked yet. What was uploaded before must have been waited for.
    pub(crate) fn clear(&mut self) {
        (self.params.len, self.counts.len) = (0, 0);
        (self.biases.len, self.extras.len, self.masks.len) = (0, 0, 0);
    }

    /// Adds a position that nothing is drawn for.
    pub(crate) fn skip(&mut self) {
        self.params.push(std::iter::once(DrawParams::NONE));
    }

    /// Adds scored position `idx` of a sequence whose first row is `first_row`; its logits are in row `logits_row`.
    ///
    /// # Errors
    /// What the sampler of the CPU says to parameters that it does not take. Nothing is added then.
    pub(crate) fn add(
        &mut self,
        seq: &SeqPlan,
        (idx, logits_row, first_row): (usize, u32, usize),
        mask: Option<&Bitmask>,
    ) -> Result<(), DrawError> {
        self.check(seq)?;
        let pos = Pos(seq.start.0 + seq.scored[idx].query_idx + 1);
        let params = sampler_params(&seq.sampling);
        let mut own = DrawParams::new(&params, logits_row, u64::from(pos.0));
        own.top_logprobs = seq.sampling.top_logprobs.unwrap_or(NO_ID);
        if seq.sampling.has_penalties() {
            let counts = seq.counts.iter().map(|count| TokenCount {
                token: count.token.0,
                in_prompt: u32::from(count.in_prompt),
                output: count.output,
            });
            own.num_counts = counts.len() as u32;
            own.counts_at = self.counts.push(counts);
            let extras = counted_rows(seq, idx, first_row);
            own.num_extras = extras.len() as u32;
            own.extras_at = self.extras.push(extras.into_iter());
        }
        let biases = seq.sampling.bias.iter().map(|&(token, bias)| TokenBias {
            token: token.0,
            bias,
        });
        own.num_bias = biases.len() as u32;
        own.bias_at = self.biases.push(biases);
        if let Some(mask) = mask {
            let words = mask.words();
            own.mask = self.masks.push(words.iter().copied()) / words.len() as u32;
        }
        self.params.push(std::iter::once(own));
        Ok(())
    }

    /// Adds the next token of a proposal, whose logits are in row `logits_row`. False, and nothing added, where the
    /// CPU's sampler would refuse it.
    pub(crate) fn add_proposal(&mut self, draws: &ProposalDraws, logits_row: u32) -> bool {
        let (params, counts, biases, position) = draws.asked();
        let counted = counts.iter().map(|count| count.token);
        let named = counted.chain(biases.iter().map(|&(token, _)| token));
        let is_known = |token: u32| (token as usize) < self.vocab;
        if params.check().is_err() || !named.into_iter().all(is_known) {
            return false;
        }
        let mut own = DrawParams::new(params, logits_row, position);
        own.num_counts = counts.len() as u32;
        own.counts_at = self.counts.push(counts.iter().map(|count| TokenCount {
            token: count.token,
            in_prompt: u32::from(count.in_prompt),
            output: count.output,
        }));
        own.num_bias = biases.len() as u32;
        let biases = biases.iter();
        own.bias_at = self
            .biases
            .push(biases.map(|&(token, bias)| TokenBias { token, bias }));
        self.params.push(std::iter::once(own));
        true
    }

    fn check(&self, seq: &SeqPlan) -> Result<(), DrawError> {
        let sampling = &seq.sampling;
        sampler_params(sampling).check()?;
        let most = sampling.top_logprobs.unwrap_or(0);
        if most as usize > TOP_LOGPROBS_MAX {
            return Err(DrawError::BadParameter {
                name: "top_logprobs",
                value: most as f32,
            });
        }
        let counted = seq.counts.iter().map(|count| count.token);
        let biased = sampling.bias.iter().map(|&(token, _)| token);
        let unknown = |token: &TokenId| token.0 as usize >= self.vocab;
        if let Some(token) = counted.chain(biased).find(unknown) {
            return Err(DrawError::UnknownToken {
                token: token.0,
                vocab: self.vocab,
            });
        }
        Ok(())
    }

    /// Whether the lists have room for a position more of a sequence.
    pub(crate) fn has_room(&self, seq: &SeqPlan) -> bool {
        self.params.has_room(1)
            && self.counts.has_room(seq.counts.len())
            && self.biases.has_room(seq.sampling.bias.len())
            && self.extras.has_room(seq.query.len())
    }

    /// Positions so far.
    pub(crate) fn len(&self) -> usize {
        self.params.len
    }

    /// Draws what was added. `tokens` holds what each row of the step stands for.
    pub(crate) fn draw(
        &self,
        queue: &Queue,
        (logits, tokens): (Ptr<f32>, Ptr<u32>),
        to: &Drawn,
    ) -> Result<(), CudaError> {
        self.params.upload(queue, "sampling parameters")?;
        self.counts.upload(queue, "token counts")?;
        self.biases.upload(queue, "biases")?;
        self.extras.upload(queue, "rows that count")?;
        self.masks.upload(queue, "masks")?;
        DrawTokens {
            drawn: to.tokens,
            statuses: to.statuses,
            params: self.params.device,
            logits,
            edited: self.edited,
            counts: self.counts.device,
            biases: self.biases.device,
            extras: self.extras.device,
            tokens,
            masks: self.masks.device,
            vocab: self.vocab as i32,
        }
        .launch(queue, self.len())?;
        let wanted = self.params.pinned.values()[..self.len()]
            .iter()
            .any(|params| params.top_logprobs != NO_ID);
        if wanted {
            Logprobs {
                drawn_logprobs: to.logprobs,
                top_tokens: to.top_tokens,
                top_logprobs: to.top_logprobs,
                drawn: to.tokens,
                params: self.params.device,
                logits,
                vocab: self.vocab as i32,
            }
            .launch(queue, self.len())?;
        }
        Ok(())
    }
}

/// The rows of the step whose tokens count as output at scored position `idx`: those that the planner could not know,
/// up to the first scored position, and the drafts before this one.
fn counted_rows(seq: &SeqPlan, idx: usize, first_row: usize) -> Vec<u32> {
    let first = seq.scored.first().map_or(0, |scored| scored.query_idx);
    let query = seq.query.iter().take(first as usize + 1).zip(0u32..);
    let drawn = query.filter(|(token, _)| matches!(token, QueryToken::Drawn { .. }));
    let drafts = seq.scored.iter().skip(1).take(idx);
    let drafts = drafts.map(|scored| scored.query_idx);
    let rows = drawn.map(|(_, query_idx)| query_idx).chain(drafts);
    rows.map(|query_idx| first_row as u32 + query_idx).collect()
}

/// Where the draws of a step go: addresses of the first of some positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    pub(crate) tokens: Ptr<u32>,
    pub(crate) statuses: Ptr<u32>,
    pub(crate) digests: Ptr<u64>,
    pub(crate) logprobs: Ptr<f32>,
    pub(crate) top_tokens: Ptr<u32>,
    pub(crate) top_logprobs: Ptr<f32>,
}

impl Drawn {
    pub(crate) fn claim(memory: &mut Memory, len: usize) -> Result<Drawn, CudaError> {
        let (region, tops) = (Region::Buffers, len * TOP_LOGPROBS_MAX);
        Ok(Drawn {
            tokens: memory.claim(region, "drawn tokens", len)?,
            statuses: memory.claim(region, "statuses", len)?,
            digests: memory.claim(region, "digests", len)?,
            logprobs: memory.claim_zeroed(region, "log-probabilities", len)?,
            top_tokens: memory.claim_zeroed(region, "most likely tokens", tops)?,
            top_logprobs: memory.claim_zeroed(region, "their log-probabilities", tops)?,
        })
    }

    /// From position `n` on.
    pub(crate) fn at(self, n: usize) -> Drawn {
        Drawn {
            tokens: self.tokens.at(n),
            statuses: self.statuses.at(n),
            digests: self.digests.at(n),
            logprobs: self.logprobs.at(n),
            top_tokens: self.top_tokens.at(n * TOP_LOGPROBS_MAX),
            top_logprobs: self.top_logprobs.at(n * TOP_LOGPROBS_MAX),
        }
    }
}

/// What came back from the device, of all positions of a step.
pub(crate) struct Answers {
    tokens: Pinned<u32>,
    statuses: Pinned<u32>,
    digests: Pinned<u64>,
    logprobs: Pinned<f32>,
    top_tokens: Pinned<u32>,
    top_logprobs: Pinned<f32>,
    /// Per row.
    faults: Pinned<u32>,
}

/// One position's answer.
pub(crate) struct Answer {
    pub(crate) token: TokenId,
    pub(crate) digest: u64,
    pub(crate) logprob: f32,
    pub(crate) top: Vec<(TokenId, f32)>,
}

impl Answers {
    pub(crate) fn new(
        device: &Device,
        scored_max: usize,
        rows_max: usize,
    ) -> Result<Answers, CudaError> {
        let tops = scored_max * TOP_LOGPROBS_MAX;
        Ok(Answers {
            tokens: Pinned::zeroed(device, scored_max)?,
            statuses: Pinned::zeroed(device, scored_max)?,
            digests: Pinned::zeroed(device, scored_max)?,
            logprobs: Pinned::zeroed(device, scored_max)?,
            top_tokens: Pinned::zeroed(device, tops)?,
            top_logprobs: Pinned::zeroed(device, tops)?,
            faults: Pinned::zeroed(device, rows_max)?,
        })
    }

    /// Queues the copies of a step's answers.
    pub(crate) fn download(
        &mut self,
        queue: &Queue,
        from: &Drawn,
        (num_scored, with_logprobs): (usize, bool),
        (faults, num_rows): (Ptr<u32>, usize),
    ) -> Result<(), CudaError> {
        let what = "answers of a step";
        queue.download(what, from.tokens, &mut self.tokens, num_scored)?;
        queue.download(what, from.statuses, &mut self.statuses, num_scored)?;
        queue.download(what, from.digests, &mut self.digests, num_scored)?;
        if with_logprobs {
            let tops = num_scored * TOP_LOGPROBS_MAX;
            queue.download(what, from.logprobs, &mut self.logprobs, num_scored)?;
            queue.download(what, from.top_tokens, &mut self.top_tokens, tops)?;
            queue.download(what, from.top_logprobs, &mut self.top_logprobs, tops)?;
        }
        queue.download(what, faults, &mut self.faults, num_rows)?;
        Ok(())
    }

    /// The first operation that was not finite in a row.
    pub(crate) fn fault(&self, row: usize) -> Option<u32> {
        let op = self.faults.values()[row];
        (op != NO_ID).then_some(op)
    }

    /// What was drawn at a position, with as many of the most likely tokens as are wanted.
    ///
    /// # Errors
    /// Why nothing was.
    pub(crate) fn at(&self, position: usize, num_top: usize) -> Result<Answer, DrawError> {
        let token = self.tokens.values()[position];
        match self.statuses.values()[position] {
            DRAWN => {}
            NOTHING_ALLOWED => return Err(DrawError::NothingAllowed),
            NOT_FINITE => return Err(DrawError::NotFinite { token }),
            UNKNOWN_TOKEN => unreachable!("tokens of lists are looked at before they are sent"),
            status => unreachable!("status {status} of a draw"),
        }
        let tops = position * TOP_LOGPROBS_MAX..position * TOP_LOGPROBS_MAX + num_top;
        let tokens = self.top_tokens.values()[tops.clone()].iter();
        let tops = tokens.zip(&self.top_logprobs.values()[tops]);
        Ok(Answer {
            token: TokenId(token),
            digest: self.digests.values()[position],
            logprob: self.logprobs.values()[position],
            top: tops
                .filter(|(token, _)| **token != NO_ID)
                .map(|(token, logprob)| (TokenId(*token), *logprob))
                .collect(),
        })
    }
}
