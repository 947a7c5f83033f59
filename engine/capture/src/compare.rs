//! Two captures of the same requests, stage by stage: by position of the output and not by step, since batches differ.
//! What can differ without harm (steps, blocks, rows, what the cache had, how long anything took) is not compared.
//!
//! A pair is compared to the first position at which its tokens differ: all that comes later follows from it. It must
//! never call a pair equal of which it compared nothing.

mod headers;
mod pairs;

use crate::capture::Capture;
use crate::record::{EventRecord, News, Redaction, Why};
use crate::replay::{plans, told};
use crate::stage::{Divergence, Stage, Verdict};
use lockstep_step::{Draw, SeqId, StepId, TokenId};
use plans::Committed;
use std::collections::BTreeMap;
use std::fmt;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The first, which the other is held against.
    A,
    /// The second.
    B,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::A => "A",
            Side::B => "B",
        })
    }
}

/// A sequence that has no partner in the other capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Where it is.
    pub side: Side,
    /// The engine's name for it there.
    pub seq: SeqId,
    /// Its request.
    pub request_id: String,
    /// Which of its choices.
    pub choice: u32,
    /// What the nearest one over there lacks.
    pub why: String,
}

/// A line of the headers that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is about.
    pub name: String,
    /// In the first; None where it has no such line.
    pub of_a: Option<String>,
    /// In the second.
    pub of_b: Option<String>,
}

/// What two captures came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Sequences that were compared, by their names in the two.
    pub pairs: Vec<(SeqId, SeqId)>,
    /// Those that were not.
    pub alone: Vec<Alone>,
    /// How the headers differ.
    pub settings: Vec<Setting>,
    /// What was recorded and could not be compared, and why.
    pub left_out: Vec<String>,
    /// What was found at each stage; a divergence names the sequence of the first.
    pub verdict: Verdict,
    /// The first divergence by position, and at one position by the life of a token.
    pub first: Option<(Stage, Divergence)>,
}

impl Compared {
    /// Whether all that was recorded was compared, and agrees.
    pub fn agrees(&self) -> bool {
        self.first.is_none() && self.left_out.is_empty()
    }
}

/// Why two captures can't be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareError {
    /// There is no request that is in both.
    NoPair {
        /// Sequences of the first.
        num_a: usize,
        /// Sequences of the second.
        num_b: usize,
        /// Why one of them has no partner.
        why: Option<String>,
    },
    /// There are, but nothing was recorded of them that could be compared.
    Nothing {
        /// Pairs of sequences.
        num_pairs: usize,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompareError::NoPair { num_a, num_b, why } => {
                write!(
                    f,
                    "of {num_a} sequences in A and {num_b} in B no two were asked the same"
                )?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            CompareError::Nothing { num_pairs } => write!(
                f,
                "{num_pairs} sequences are in both, and nothing was recorded of them that can be \
                 compared"
            ),
        }
    }
}

impl std::error::Error for CompareError {}

/// Compares two captures.
///
/// # Errors
/// If there is nothing to compare.
pub fn compare(a: &Capture, b: &Capture) -> Result<Compared, CompareError> {
    let redaction = stricter(a.header.redaction, b.header.redaction);
    let (pairs, alone) = pairs::pair(a, b, redaction);
    if pairs.is_empty() {
        return Err(CompareError::NoPair {
            num_a: a.requests.len(),
            num_b: b.requests.len(),
            why: alone.first().map(|own| own.why.clone()),
        });
    }
    let mut left_out = Vec::new();
    let sides = [(Side::A, a), (Side::B, b)]
        .map(|(side, capture)| Seen::of(side, capture, redaction, &mut left_out));
    let mut comparison = Comparison {
        redaction,
        verdict: Verdict::default(),
    };
    for &(seq_a, seq_b) in &pairs {
        let own = [sides[0].one(seq_a), sides[1].one(seq_b)];
        comparison.pair(&own[0], &own[1]);
    }
    let verdict = comparison.judged();
    if verdict.stages.iter().all(|found| found.num_compared == 0) {
        let num_pairs = pairs.len();
        return Err(CompareError::Nothing { num_pairs });
    }
    let differing = verdict.stages.iter();
    let differing = differing.filter_map(|found| Some((found.stage, found.first.clone()?)));
    let first = differing.min_by_key(|(stage, first)| (first.pos, first.seq, *stage));
    Ok(Compared {
        pairs,
        alone,
        settings: headers::differing(&a.header, &b.header),
        left_out,
        verdict,
        first,
    })
}

/// What is left out of one of the two can't be compared.
fn stricter(a: Redaction, b: Redaction) -> Redaction {
    match (a, b) {
        (Redaction::Tokens, _) | (_, Redaction::Tokens) => Redaction::Tokens,
        (Redaction::Text, _) | (_, Redaction::Text) => Redaction::Text,
        (Redaction::None, Redaction::None) => Redaction::None,
    }
}

/// What a capture says of its sequences.
struct Seen<'a> {
    capture: &'a Capture,
    committed: BTreeMap<SeqId, Vec<Committed>>,
    told: BTreeMap<SeqId, Vec<(Option<StepId>, &'a EventRecord)>>,
}

/// One sequence of it.
struct One<'a> {
    seq: SeqId,
    num_prompt: u32,
    committed: &'a [Committed],
    /// What its reader was told, up to where it was ended from outside.
    told: Vec<(Option<StepId>, &'a EventRecord)>,
    /// Whether it was: what comes then is not known.
    is_open: bool,
}

impl<'a> Seen<'a> {
    fn of(
        side: Side,
        capture: &'a Capture,
        redaction: Redaction,
        left_out: &mut Vec<String>,
    ) -> Seen<'a> {
        let mut told: BTreeMap<SeqId, Vec<_>> = BTreeMap::new();
        for (step, event) in &capture.events {
            if !matches!(event.news, News::Scheduled | News::Preempted) {
                told.entry(event.seq).or_default().push((*step, event));
            }
        }
        let committed = match redaction {
            Redaction::Tokens => told_draws(capture, &told),
            Redaction::None | Redaction::Text => {
                let seen = plans::fates(capture);
                if let Some(wrong) = seen.mistakes.first() {
                    left_out.push(format!(
                        "of {side} whatever follows from a wrong plan, which `replay` judges: {}",
                        wrong.what
                    ));
                }
                let mut committed = plans::committed(capture, &seen);
                for (seq, (_, finish)) in plans::ends(capture) {
                    let Some(own) = committed.get_mut(&seq) else {
                        continue;
                    };
                    // The draw that ended it with an error is none of its tokens.
                    let num = finish.completion_tokens as usize;
                    let failed = own.get(num).is_some_and(|own| own.draw.is_err());
                    own.truncate(num + usize::from(failed));
                }
                committed
            }
        };
        Seen {
            capture,
            committed,
            told,
        }
    }

    fn one(&self, seq: SeqId) -> One<'_> {
        let told = self.told.get(&seq).map_or(&[][..], Vec::as_slice);
        let is_end = |(_, event): &&(Option<StepId>, &EventRecord)| is_outside(&event.news);
        let ends = told.iter().position(|own| is_end(&own));
        let told = &told[..ends.unwrap_or(told.len())];
        let last = told.last().map(|(_, event)| &event.news);
        let prompt = self.capture.requests.get(&seq).map(|own| own.prompt.len());
        One {
            seq,
            num_prompt: prompt.unwrap_or(0) as u32,
            committed: self.committed.get(&seq).map_or(&[], Vec::as_slice),
            told: told.to_vec(),
            is_open: !matches!(last, Some(News::Finished(_))),
        }
    }
}

/// Whether somebody else ended it.
fn is_outside(news: &News) -> bool {
    let News::Finished(finished) = news else {
        return false;
    };
    match &finished.why {
        Why::Aborted => true,
        Why::Error(kind, _) => kind == "step_failed",
        _ => false,
    }
}

/// What was committed as far as readers were told of it: without token ids nothing tells which drafts were right.
fn told_draws(
    capture: &Capture,
    told: &BTreeMap<SeqId, Vec<(Option<StepId>, &EventRecord)>>,
) -> BTreeMap<SeqId, Vec<Committed>> {
    let free = plans::free_mask(capture.header.limits.vocab_size);
    let of_one = |seq: SeqId, told: &[(Option<StepId>, &EventRecord)]| {
        let mut own: Vec<Committed> = Vec::new();
        for (id, event) in told {
            let (Some(id), News::Token { digest, .. }) = (*id, &event.news) else {
                continue;
            };
            let idx = own.iter().rev().take_while(|own| own.step == id).count();
            let step = capture.steps.get(&id);
            let mask = step.and_then(|step| {
                let part = step.plan.seqs.iter().find(|part| part.seq == seq)?;
                plans::mask(step, part.scored.get(idx))
            });
            own.push(Committed {
                step: id,
                mask: mask.filter(|own| *own != free),
                draw: Ok(Draw {
                    token: TokenId(0),
                    digest: *digest,
                    logprobs: None,
                }),
            });
        }
        own
    };
    told.iter()
        .map(|(&seq, told)| (seq, of_one(seq, told)))
        .collect()
}

struct Comparison {
    redaction: Redaction,
    verdict: Verdict,
}

impl Comparison {
    fn pair(&mut self, a: &One<'_>, b: &One<'_>) {
        let is_equal = self.drawn(a, b);
        match self.redaction {
            // Keyed digests of two captures have nothing in common.
            Redaction::Tokens if is_equal => self.finishes(a, b),
            Redaction::Tokens => {}
            Redaction::None | Redaction::Text => self.told(a, b),
        }
    }

    /// Logits, masks and draws. False if they go apart.
    fn drawn(&mut self, a: &One<'_>, b: &One<'_>) -> bool {
        for (idx, (own, other)) in a.committed.iter().zip(b.committed).enumerate() {
            let differs = |expected: String, found: String| Divergence {
                seq: a.seq,
                step: None,
                pos: Some(a.num_prompt + idx as u32),
                expected,
                found,
                near: Some(format!(
                    "token {idx} of the output, step {} of A, step {} of B",
                    own.step, other.step
                )),
            };
            let logits = |own: &Committed| match &own.draw {
                Ok(draw) => draw.digest.to_string(),
                Err(error) => error.to_string(),
            };
            let (Ok(draw), Ok(other_draw)) = (&own.draw, &other.draw) else {
                let is_same = own.draw.as_ref().err() == other.draw.as_ref().err();
                let found = self.verdict.of(Stage::Logits);
                found.count(is_same, || differs(logits(own), logits(other)));
                return is_same;
            };
            let same_logits = draw.digest == other_draw.digest;
            let found = self.verdict.of(Stage::Logits);
            found.count(same_logits, || differs(logits(own), logits(other)));
            let same_mask = own.mask == other.mask;
            if own.mask.is_some() || other.mask.is_some() {
                let say = |own: &Committed| {
                    let mask = own.mask.map(|mask| mask.to_string());
                    mask.unwrap_or_else(|| "no mask".to_string())
                };
                let found = self.verdict.of(Stage::Mask);
                found.count(same_mask, || differs(say(own), say(other)));
            }
            if self.redaction == Redaction::Tokens {
                // From here on they may say different things.
                if !same_logits || !same_mask {
                    return false;
                }
                continue;
            }
            if same_logits && same_mask {
                let found = self.verdict.of(Stage::Draw);
                found.count(draw == other_draw, || {
                    differs(told::drawn(draw), told::drawn(other_draw))
                });
            }
            if draw.token != other_draw.token {
                return false;
            }
        }
        true
    }

    /// What readers were told, to the first that differs.
    fn told(&mut self, a: &One<'_>, b: &One<'_>) {
        let wanted = a.told.iter();
        let wanted: Vec<News> = wanted.map(|(_, event)| event.news.clone()).collect();
        let found: Vec<(Option<StepId>, &News)> = b
            .told
            .iter()
            .map(|(step, event)| (*step, &event.news))
            .collect();
        for idx in 0..wanted.len().max(found.len()) {
            let (expected, own) = (wanted.get(idx), found.get(idx).map(|own| own.1));
            // What was cut short from outside says nothing of what would have come.
            if own.is_none() && b.is_open || expected.is_none() && a.is_open {
                return;
            }
            if let (Some(expected), Some(own)) = (expected, own)
                && told::is_same(own, expected)
            {
                self.verdict.of(told::stage_of(own)).agree();
                if let News::Token { .. } = own {
                    self.verdict.of(Stage::Verify).agree();
                }
                continue;
            }
            let rest = (found.get(idx..), wanted.get(idx..));
            let stage = told::blame(rest.0.unwrap_or(&[]), rest.1.unwrap_or(&[]));
            let say = |news: Option<&News>| news.map_or("nothing more".to_string(), told::say);
            let at = [a, b].map(|own| own.told.get(idx));
            let divergence = divergence_of(a, at, say(expected), say(own));
            self.verdict.of(stage).count(false, || divergence);
            return;
        }
    }

    /// How the two ended, where nothing else of what they said can be compared.
    fn finishes(&mut self, a: &One<'_>, b: &One<'_>) {
        let at = [a, b].map(|own| own.told.last());
        let (Some(last_a), Some(last_b)) = (at[0], at[1]) else {
            return;
        };
        let (News::Finished(own), News::Finished(other)) = (&last_a.1.news, &last_b.1.news) else {
            return;
        };
        let plain = |own: &crate::FinishRecord| {
            let kind = match &own.why {
                Why::Error(kind, _) => kind.as_str(),
                why => why.name(),
            };
            format!(
                "{kind} after {} tokens, {} of them reasoning",
                own.completion_tokens, own.reasoning_tokens
            )
        };
        let (own, other) = (plain(own), plain(other));
        let found = self.verdict.of(Stage::Stop);
        found.count(own == other, || divergence_of(a, at, own, other));
    }

    /// With the reasons why nothing was compared at a stage.
    fn judged(mut self) -> Verdict {
        for stage in [Stage::Schedule, Stage::StateRow] {
            let why = "plans may differ between two runs; a replay holds them against their rules";
            self.verdict.unobserved(stage, why);
        }
        self.verdict.unobserved(
            Stage::Stream,
            "responses carry ids and times of their own; their events are compared",
        );
        if self.redaction == Redaction::Tokens {
            for stage in [Stage::Draw, Stage::Verify, Stage::Detokenize, Stage::Tags] {
                let why = "token ids are left out of a capture";
                self.verdict.unobserved(stage, why);
            }
        }
        for stage in [Stage::Logits, Stage::Draw] {
            self.verdict
                .unobserved(stage, "no draw was committed in both");
        }
        let why = "no request was constrained where both drew";
        self.verdict.unobserved(Stage::Mask, why);
        for stage in [Stage::Verify, Stage::Detokenize, Stage::Stop, Stage::Tags] {
            self.verdict
                .unobserved(stage, "no two readers were told anything of the kind");
        }
        self.verdict
    }
}

fn divergence_of(
    a: &One<'_>,
    at: [Option<&(Option<StepId>, &EventRecord)>; 2],
    expected: String,
    found: String,
) -> Divergence {
    // What is told with a token, or after it, belongs to its position.
    let num_tokens = at.iter().flatten().map(|(_, event)| event.at).min();
    let idx = num_tokens.unwrap_or(0).saturating_sub(1);
    let step = |at: Option<&(Option<StepId>, &EventRecord)>| {
        let step = at.and_then(|(step, _)| *step);
        step.map_or("no step".to_string(), |step| format!("step {step}"))
    };
    Divergence {
        seq: a.seq,
        step: None,
        pos: Some(a.num_prompt + idx),
        expected,
        found,
        near: Some(format!(
            "token {idx} of the output, {} of A, {} of B",
            step(at[0]),
            step(at[1])
        )),
    }
}
