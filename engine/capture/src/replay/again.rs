//! The requests of a capture on a fresh engine, plainly, which is made to say the tokens that were recorded: what
//! logits it computed, which masks it filled and what it would have drawn is written down beside what was recorded.
//!
//! It must never let what it would have drawn reach the engine.

use super::ops::Ops;
use super::plans::{Committed, free_mask};
use super::told::drawn;
use super::{ReplayError, Witness};
use crate::capture::Capture;
use crate::record::{ConstraintRecord, EventRecord, Redaction};
use crate::stage::{Divergence, Found, Stage, Verdict};
use lockstep_core::{Engine, EngineConfig, Speculation, Time, run_step};
use lockstep_step::{
    BLOCK_LEN, Backend, BackendError, BackendLimits, Digest, Draw, MaskSet, SeqError, SeqId,
    StepId, StepOutput, StepPlan,
};
use std::collections::{BTreeMap, VecDeque};

/// A position whose draw was committed: what was recorded, and what a fresh engine says.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The sequence, as recorded.
    pub seq: SeqId,
    /// The step that drew it, as recorded.
    pub step: StepId,
    /// The position of the token that was drawn.
    pub pos: u32,
    /// Recorded: the mask's digest; None if the position had none that forbids anything, or its row was empty.
    pub mask: Option<Digest>,
    /// The fresh engine's mask.
    pub own_mask: Option<Digest>,
    /// Recorded.
    pub draw: Result<Draw, SeqError>,
    /// What the fresh engine would have drawn.
    pub own_draw: Result<Draw, SeqError>,
    /// Whether the mask could be made again.
    pub knows_mask: bool,
}

/// What the fresh engine did.
pub(super) struct Again<'a> {
    pub(super) places: Vec<Place>,
    /// What readers would have been told, by sequence.
    pub(super) told: BTreeMap<SeqId, Vec<EventRecord>>,
    /// Requests that could not be made again, and why.
    pub(super) unmade: BTreeMap<SeqId, String>,
    /// What its operations computed, beside what was recorded.
    pub(super) ops: Ops<'a>,
}

/// Runs them.
pub(super) fn run<'a, B: Backend>(
    capture: &'a Capture,
    (committed, ops): (BTreeMap<SeqId, Vec<Committed>>, Ops<'a>),
    mut witness: Witness<'_, B>,
) -> Result<Again<'a>, ReplayError> {
    let recorded = capture.header.limits;
    let seq_len_max = recorded.seq_len_max.min(recorded.num_blocks * BLOCK_LEN);
    let limits = witness.backend.limits();
    if limits.vocab_size != recorded.vocab_size {
        return Err(ReplayError::OtherVocabulary {
            recorded: recorded.vocab_size,
            found: limits.vocab_size,
        });
    }
    let longest = longest(capture, &committed);
    let can_hold = limits.seq_len_max.min(limits.num_blocks * BLOCK_LEN);
    if longest > can_hold {
        return Err(ReplayError::TooSmall {
            wanted: longest,
            limit: can_hold,
        });
    }
    let limits = BackendLimits {
        seq_len_max: seq_len_max.min(can_hold),
        ..limits
    };
    let config = EngineConfig {
        max_num_seqs: witness.num_seqs.max(1),
        max_num_batched_tokens: limits.query_tokens_max,
        chunk_tokens_max: limits.query_tokens_max,
        max_waiting_requests: u32::MAX,
        max_waiting_tokens: u64::MAX,
        speculation: Speculation::OFF,
        prefix_cache: false,
        overlap: false,
        ..EngineConfig::default()
    };
    let engine = Engine::new(config, limits, witness.vocabulary.clone())
        .map_err(|error| ReplayError::Failed(error.to_string()))?;
    let is_watched = !ops.is_empty() && witness.backend.watch_ops(true);
    let mut run = Run {
        engine,
        forced: Forced {
            inner: witness.backend,
            waiting: BTreeMap::new(),
            places: Vec::new(),
            is_watched,
            ops: Ops::default(),
        },
        names: BTreeMap::new(),
        again: Again {
            places: Vec::new(),
            told: BTreeMap::new(),
            unmade: BTreeMap::new(),
            ops: Ops::default(),
        },
    };
    run.forced.ops = ops;
    for (seq, own) in committed.into_iter().filter(|(_, own)| !own.is_empty()) {
        run.submit(capture, seq, own, witness.matcher);
    }
    run.all(witness.progress)?;
    run.again.places = run.forced.places;
    run.again.ops = run.forced.ops;
    run.again
        .places
        .sort_by_key(|place| (place.step, place.seq, place.pos));
    Ok(run.again)
}

/// Tokens of the longest sequence.
fn longest(capture: &Capture, committed: &BTreeMap<SeqId, Vec<Committed>>) -> u32 {
    let lens = committed.iter().filter_map(|(seq, own)| {
        let request = capture.requests.get(seq)?;
        Some((request.prompt.len() + own.len()) as u32)
    });
    lens.max().unwrap_or(0)
}

struct Run<'a, B> {
    engine: Engine,
    forced: Forced<'a, B>,
    /// The fresh engine's names for recorded sequences.
    names: BTreeMap<SeqId, SeqId>,
    again: Again<'a>,
}

impl<B: Backend> Run<'_, B> {
    fn submit(
        &mut self,
        capture: &Capture,
        seq: SeqId,
        committed: Vec<Committed>,
        make: &super::MakeMatcher<'_>,
    ) {
        let Some(request) = capture.requests.get(&seq) else {
            return;
        };
        let (matcher, knows_mask) = match &request.constraint {
            ConstraintRecord::None => (Ok(None), request.reasoning.is_none() || is_plain(capture)),
            ConstraintRecord::Source(source) => (make(source), true),
            ConstraintRecord::Unknown => (Ok(None), false),
        };
        let made = matcher.and_then(|matcher| request.request(matcher));
        let made = made.and_then(|made| {
            let submitted = self.engine.submit(Time::default(), made);
            submitted.map_err(|refusal| format!("the engine refuses it: {refusal}"))
        });
        match made {
            Ok(own) => {
                self.names.insert(own, seq);
                let waiting = Waiting {
                    seq,
                    next_pos: request.prompt.len() as u32,
                    committed: committed.into(),
                    knows_mask,
                };
                self.forced.waiting.insert(own, waiting);
            }
            Err(why) => drop(self.again.unmade.insert(seq, why)),
        }
    }

    fn all(&mut self, progress: &dyn Fn(u64, u64)) -> Result<(), ReplayError> {
        let total = self.names.len() as u64;
        let mut num_done = 0;
        while run_step(&mut self.engine, &mut self.forced, Time::default())? {
            for event in self.engine.poll_events() {
                let Some(&seq) = self.names.get(&event.seq) else {
                    continue;
                };
                let mut record = EventRecord::of(&event);
                record.seq = seq;
                num_done += u64::from(matches!(record.news, crate::record::News::Finished(_)));
                self.again.told.entry(seq).or_default().push(record);
            }
            // What was cut short ends where the record does.
            let waiting = self.forced.waiting.iter();
            let over = waiting.filter(|(_, own)| own.committed.is_empty());
            let over: Vec<SeqId> = over.map(|(own, _)| *own).collect();
            for own in over {
                self.forced.waiting.remove(&own);
                num_done += u64::from(self.engine.abort(own));
            }
            progress(num_done.min(total), total);
        }
        Ok(())
    }
}

/// Whether everything is in a capture that a mask is made of.
fn is_plain(capture: &Capture) -> bool {
    capture.header.redaction == Redaction::None
}

/// What is still to be said by a sequence.
struct Waiting {
    seq: SeqId,
    next_pos: u32,
    committed: VecDeque<Committed>,
    knows_mask: bool,
}

/// A backend that computes, and says what it was told to.
struct Forced<'a, B> {
    inner: B,
    /// By the fresh engine's names.
    waiting: BTreeMap<SeqId, Waiting>,
    places: Vec<Place>,
    /// Whether digests of operations are compared, and with what.
    is_watched: bool,
    ops: Ops<'a>,
}

impl<B: Backend> Forced<'_, B> {
    fn compare_ops(&mut self, step: StepId) {
        let ops = self.inner.take_ops(step);
        for of_token in ops.chunk_by(|a, b| (a.seq, a.pos) == (b.seq, b.pos)) {
            if let Some(waiting) = self.waiting.get(&of_token[0].seq) {
                self.ops.compare(waiting.seq, of_token[0].pos.0, of_token);
            }
        }
    }
}

impl<B: Backend> Backend for Forced<'_, B> {
    type Forward = (StepPlan, B::Forward);
    type Sampled = (StepPlan, Vec<Option<Digest>>, B::Sampled);

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        Ok((plan.clone(), self.inner.forward(plan)?))
    }

    fn draw(
        &mut self,
        (plan, forward): Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        let rows = masks.rows.iter();
        let rows = rows.map(|row| row.as_ref().map(lockstep_step::Bitmask::digest));
        let rows = rows.collect();
        Ok((plan, rows, self.inner.draw(forward, masks)?))
    }

    fn collect(&mut self, sampled: Self::Sampled) -> Result<StepOutput, BackendError> {
        let (plan, rows, sampled) = sampled;
        let free = free_mask(self.limits().vocab_size);
        let mut output = self.inner.collect(sampled)?;
        if self.is_watched {
            self.compare_ops(plan.step);
        }
        for (part, answer) in plan.seqs.iter().zip(&mut output.seqs) {
            let (Some(scored), Some(waiting)) =
                (part.scored.first(), self.waiting.get_mut(&part.seq))
            else {
                continue;
            };
            let Some(said) = waiting.committed.pop_front() else {
                continue;
            };
            let own_mask = scored.mask.and_then(|row| rows[row.0 as usize]);
            let own_mask = own_mask.filter(|own| *own != free);
            let own_draw = match &answer.draws {
                Ok(draws) => draws.first().cloned().ok_or_else(|| {
                    BackendError::Device(format!("{:?}: no draw was made", part.seq))
                })?,
                Err(error) => {
                    self.places
                        .push(waiting.place(own_mask, &said, Err(error.clone())));
                    continue;
                }
            };
            self.places
                .push(waiting.place(own_mask, &said, Ok(own_draw)));
            waiting.next_pos += 1;
            answer.draws = said.draw.map(|draw| vec![draw]);
        }
        Ok(output)
    }
}

impl Waiting {
    fn place(
        &self,
        own_mask: Option<Digest>,
        said: &Committed,
        own_draw: Result<Draw, SeqError>,
    ) -> Place {
        Place {
            seq: self.seq,
            step: said.step,
            pos: self.next_pos,
            mask: said.mask,
            own_mask,
            draw: said.draw.clone(),
            own_draw,
            knows_mask: self.knows_mask,
        }
    }
}

impl Again<'_> {
    /// Judges logits, masks and draws. A draw is judged where it was made from the same logits and the same mask.
    pub(super) fn judge(&self, capture: &Capture, verdict: &mut Verdict) {
        for place in &self.places {
            place.judge(verdict);
        }
        self.name_operation(verdict.of(Stage::Logits));
        if let Some((seq, why)) = self.unmade.iter().next() {
            let num = self.unmade.len();
            let why = format!("{num} requests could not be made again: {seq:?}: {why}");
            for stage in Stage::ALL {
                verdict.unobserved(stage, why.clone());
            }
        }
        let requests = capture.requests.values();
        let unknown = requests.filter(|own| own.constraint == ConstraintRecord::Unknown);
        let why = match unknown.count() {
            0 => "no request was constrained".to_string(),
            num => format!("the constraints of {num} requests are left out of the capture"),
        };
        verdict.unobserved(Stage::Mask, why);
        for stage in [Stage::Logits, Stage::Draw] {
            verdict.unobserved(stage, "no draw was committed");
        }
    }
}

impl Again<'_> {
    /// Says of the first logits that differ which operation did first. One that differs earlier, in a sequence whose
    /// logits are right, goes before: what was recorded of it contradicts itself.
    fn name_operation(&self, logits: &mut Found) {
        if let Some(first) = &mut logits.first
            && let Some(differing) = self.ops.differing.get(&first.seq)
            && Some(differing.step) <= first.step
        {
            first.near = Some(match first.step == Some(differing.step) {
                true => differing.name.clone(),
                false => format!("{}, in step {}", differing.name, differing.step),
            });
            return;
        }
        let earliest = self.ops.differing.values();
        let earliest = earliest.min_by_key(|own| (own.step, own.pos, own.seq));
        if let Some(earliest) = earliest
            && logits
                .first
                .as_ref()
                .is_none_or(|first| Some(earliest.step) < first.step)
        {
            logits.first = Some(earliest.divergence());
        }
    }
}

impl Place {
    /// Whether the logits were others, or could be drawn from in one of the two only.
    pub fn logits_differ(&self) -> bool {
        match (&self.draw, &self.own_draw) {
            (Ok(told), Ok(own)) => told.digest != own.digest,
            (told, own) => told.as_ref().err() != own.as_ref().err(),
        }
    }

    /// Whether the mask was another; None where it could not be made again.
    pub fn mask_differs(&self) -> Option<bool> {
        self.knows_mask.then_some(self.mask != self.own_mask)
    }

    /// Whether something else was drawn from the same logits under the same mask; None where these were not the same.
    pub fn draw_differs(&self) -> Option<bool> {
        let (Ok(told), Ok(own)) = (&self.draw, &self.own_draw) else {
            return None;
        };
        let same_mask = self.mask_differs().map_or(self.mask.is_none(), |own| !own);
        (same_mask && !self.logits_differ()).then_some(told != own)
    }

    fn judge(&self, verdict: &mut Verdict) {
        let differs = |expected: String, found: String| Divergence {
            seq: self.seq,
            step: Some(self.step),
            pos: Some(self.pos),
            expected,
            found,
            near: None,
        };
        let logits = |draw: &Result<Draw, SeqError>| match draw {
            Ok(draw) => draw.digest.to_string(),
            Err(error) => error.to_string(),
        };
        verdict.of(Stage::Logits).count(!self.logits_differ(), || {
            differs(logits(&self.own_draw), logits(&self.draw))
        });
        let (Ok(told), Ok(own)) = (&self.draw, &self.own_draw) else {
            return;
        };
        if let Some(mask_differs) = self.mask_differs()
            && (self.mask.is_some() || self.own_mask.is_some())
        {
            let say =
                |mask: Option<Digest>| mask.map_or("no mask".to_string(), |own| own.to_string());
            verdict.of(Stage::Mask).count(!mask_differs, || {
                differs(say(self.own_mask), say(self.mask))
            });
        }
        if let Some(draw_differs) = self.draw_differs() {
            let found = verdict.of(Stage::Draw);
            found.count(!draw_differs, || differs(drawn(own), drawn(told)));
        }
    }
}
