//! What blocks and rows hold, by content: every plan of a run again, with the hash of a prefix of tokens in each
//! slot and row. It knows what was committed from the answers alone, so that whatever the engine believes can be
//! held against it. It must never ask the engine or a backend.
//!
//! A hash begins with the salt of its sequence: what was computed under another salt is something else.

mod sequence;
#[cfg(test)]
mod tests;

use lockstep_step::{
    BLOCK_LEN, BlockId, Pos, RowId, ScoredPosition, SeqId, SeqPlan, StepId, StepOutput, StepPlan,
    TokenId,
};
use sequence::{Flight, Sequence};
use std::collections::BTreeMap;

/// A step as it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// What was planned.
    pub plan: &'a StepPlan,
    /// Whether each of its mask rows was filled; none where it never came to that, and nothing was computed.
    pub filled: Option<&'a [bool]>,
    /// What came out; none where it failed or was not waited for.
    pub output: Option<&'a StepOutput>,
    /// Whether it was started before the step before it was answered.
    pub is_ahead: bool,
}

/// A request's sequence, as far as the mirror needs it.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Its prompt.
    pub prompt: &'a [TokenId],
    /// Who shares with it.
    pub salt: &'a str,
    /// How many tokens of output it had each time it lost its blocks.
    pub preempted: Vec<u32>,
}

/// Whose mistake a wrong plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Of drafts: what is computed for them, and what is taken back when they were wrong.
    Speculation,
    /// Of what is planned ahead, given up and taken up again.
    Overlap,
    /// Of blocks, rows and kept prefixes.
    Cache,
}

/// What a plan got wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// The plan.
    pub step: StepId,
    /// Whose part of it.
    pub seq: SeqId,
    /// Who is to blame for this kind of mistake.
    pub blame: Blame,
    /// Whether it is about what blocks and rows hold, rather than about which tokens are computed.
    pub is_content: bool,
    /// What is wrong.
    pub what: String,
}

/// What became of a sequence's part of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// Whether it begins where its sequence stood when it was answered.
    pub counts: bool,
    /// Drafts that were right.
    pub num_accepted: usize,
    /// Draws that its sequence grew by.
    pub num_drawn: usize,
    /// What its query tokens stand for; none for a draw that was never made.
    pub tokens: Vec<Option<TokenId>>,
}

/// What the mirror saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What is wrong with the first plan that is wrong.
    pub mistakes: Vec<Mistake>,
    /// Positions and rows that were looked at.
    pub num_looked: u64,
    /// Of each part of each step that was answered.
    pub fates: BTreeMap<(StepId, SeqId), Fate>,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    seq: SeqId,
    is_draft: bool,
}

/// What a row holds.
#[derive(Clone, Copy, Debug)]
struct Row {
    hash: u64,
    len: usize,
    seq: SeqId,
}

/// Goes through the steps of one server, in their order, up to the first plan that is wrong. `step_tokens_max` is how
/// many query tokens a step may have. Where they are not the `whole` story, what nobody is known to have written is
/// taken to be right.
pub fn reflect(
    steps: &[Recorded<'_>],
    asked: &BTreeMap<SeqId, Asked<'_>>,
    step_tokens_max: u32,
    is_whole: bool,
) -> Seen {
    go(steps, asked, (step_tokens_max, is_whole), false)
}

/// The same to the last step: what became of the parts that come after a wrong plan is told as far as they begin where
/// their sequence stands.
pub(crate) fn reflect_all(
    steps: &[Recorded<'_>],
    asked: &BTreeMap<SeqId, Asked<'_>>,
    step_tokens_max: u32,
    is_whole: bool,
) -> Seen {
    go(steps, asked, (step_tokens_max, is_whole), true)
}

fn go(
    steps: &[Recorded<'_>],
    asked: &BTreeMap<SeqId, Asked<'_>>,
    (step_tokens_max, is_whole): (u32, bool),
    goes_on: bool,
) -> Seen {
    let sequences = asked.iter().map(|(&id, asked)| (id, Sequence::new(asked)));
    let mut mirror = Mirror {
        slots: BTreeMap::new(),
        rows: BTreeMap::new(),
        sequences: sequences.collect(),
        seen: Seen::default(),
        is_whole,
    };
    for (idx, step) in steps.iter().enumerate() {
        let before = idx.checked_sub(1).map(|before| &steps[before]);
        if let Some(before) = before.filter(|_| !step.is_ahead) {
            mirror.answer(before);
        }
        let in_flight = before.filter(|_| step.is_ahead);
        in_flight.into_iter().for_each(|before| mirror.draw(before));
        mirror.look(step, in_flight, step_tokens_max);
        if !mirror.seen.mistakes.is_empty() && !goes_on {
            return mirror.seen;
        }
        // What follows from the first mistake is none of its own.
        mirror.seen.mistakes.truncate(1);
        mirror.compute(step);
        in_flight
            .into_iter()
            .for_each(|before| mirror.answer(before));
    }
    if let Some(last) = steps.last() {
        mirror.answer(last);
    }
    mirror.seen
}

struct Mirror {
    slots: BTreeMap<(BlockId, u32), Slot>,
    rows: BTreeMap<RowId, Row>,
    sequences: BTreeMap<SeqId, Sequence>,
    seen: Seen,
    is_whole: bool,
}

impl Mirror {
    /// Holds a plan against what is known. `before` is a step that is not answered yet.
    fn look(&mut self, step: &Recorded<'_>, before: Option<&Recorded<'_>>, tokens_max: u32) {
        let num_tokens = step.plan.num_query_tokens();
        if num_tokens > tokens_max as usize {
            let first = step.plan.seqs.first().map_or(SeqId(0), |seq| seq.seq);
            let what = format!("{num_tokens} tokens in a step of at most {tokens_max}");
            self.blame(step.plan.step, first, (Blame::Overlap, false), what);
        }
        for part in &step.plan.seqs {
            let Some(sequence) = self.sequences.get_mut(&part.seq) else {
                continue;
            };
            let looked = sequence
                .place(part, step.plan.step, before.is_some())
                .and_then(|()| sequence.check_tokens(part))
                .map_err(|(blame, what)| ((blame, false), what))
                .and_then(|()| self.check_held(part, before.map(|before| before.plan)));
            if let Err((blame, what)) = looked {
                let late = self.sequences.get_mut(&part.seq);
                let late = late.and_then(|sequence| sequence.blamed.take());
                self.blame(late.unwrap_or(step.plan.step), part.seq, blame, what);
            }
        }
    }

    fn blame(
        &mut self,
        step: StepId,
        seq: SeqId,
        (blame, is_content): (Blame, bool),
        what: String,
    ) {
        self.seen.mistakes.push(Mistake {
            step,
            seq,
            blame,
            is_content,
            what: format!("{seq:?} in step {step}: {what}"),
        });
    }

    /// What a part reads and writes, by content. `before` is a plan that is not answered yet.
    fn check_held(
        &mut self,
        part: &SeqPlan,
        before: Option<&StepPlan>,
    ) -> Result<(), ((Blame, bool), String)> {
        let contents = self.check_contents(part);
        let checked = contents.and_then(|()| match before {
            Some(before) => self.check_in_flight(part, before),
            None => Ok(()),
        });
        checked.map_err(|(blame, what)| ((blame, true), what))
    }

    /// What a part reads holds the tokens that its sequence has there.
    fn check_contents(&mut self, part: &SeqPlan) -> Result<(), (Blame, String)> {
        let sequence = &self.sequences[&part.seq];
        let start = part.start.0;
        for pos in 0..start {
            let Some(&block) = part.block_table.get((pos / BLOCK_LEN) as usize) else {
                return Err((Blame::Cache, format!("no block holds position {pos}")));
            };
            let held = self.slots.get(&(block, pos % BLOCK_LEN));
            if held.is_none() && !self.is_whole {
                continue;
            }
            self.seen.num_looked += 1;
            if held.map(|held| held.hash) == sequence.hash(pos as usize + 1) {
                continue;
            }
            let own = held.filter(|held| held.seq == part.seq);
            let blame = match own {
                Some(held) if held.is_draft && !sequence.is_admitted => Blame::Speculation,
                _ => Blame::Cache,
            };
            let what = match held {
                Some(held) => format!("other tokens, by {:?}", held.seq),
                None => "nothing".to_owned(),
            };
            let what = format!("{block} at position {pos} of {start} holds {what}");
            return Err((blame, what));
        }
        let Some(row) = part.rows.read else {
            return Ok(());
        };
        let held = self.rows.get(&row);
        if held.is_none() && !self.is_whole {
            return Ok(());
        }
        self.seen.num_looked += 1;
        let is_right = held.is_some_and(|held| {
            held.len == start as usize && Some(held.hash) == sequence.hash(held.len)
        });
        if is_right {
            return Ok(());
        }
        let is_own = held.is_some_and(|held| held.seq == part.seq);
        let blame = match is_own && !sequence.is_admitted && sequence.had_drafts {
            true => Blame::Speculation,
            false => Blame::Cache,
        };
        let what = match held {
            Some(held) => format!("{} tokens of {:?}", held.len, held.seq),
            None => "nothing".to_owned(),
        };
        Err((
            blame,
            format!("row {row}, read after {start} tokens, holds {what}"),
        ))
    }

    /// What a part writes is named by nobody else's part of a step that is not answered.
    fn check_in_flight(&self, part: &SeqPlan, before: &StepPlan) -> Result<(), (Blame, String)> {
        let first = (part.start.0 / BLOCK_LEN) as usize;
        let blocks = part.block_table.get(first..).unwrap_or_default();
        for other in before.seqs.iter().filter(|other| other.seq != part.seq) {
            let mut rows = other
                .rows
                .writes
                .iter()
                .map(|write| write.row)
                .chain(other.rows.read);
            let block = blocks
                .iter()
                .find(|block| other.block_table.contains(block));
            let writes = &part.rows.writes;
            let row = rows.find(|row| writes.iter().any(|write| write.row == *row));
            let taken = match (block, row) {
                (Some(block), _) => format!("block {block}"),
                (None, Some(row)) => format!("row {row}"),
                (None, None) => continue,
            };
            let gave_way = self
                .sequences
                .get(&other.seq)
                .is_some_and(Sequence::gave_way);
            let blame = if gave_way {
                Blame::Overlap
            } else {
                Blame::Cache
            };
            let what = format!(
                "it writes {taken}, which step {} still names for {:?}",
                before.step, other.seq
            );
            return Err((blame, what));
        }
        Ok(())
    }

    /// Notes what a step writes, and that its parts are in flight.
    fn compute(&mut self, step: &Recorded<'_>) {
        for part in &step.plan.seqs {
            let Some(sequence) = self.sequences.get_mut(&part.seq) else {
                continue;
            };
            let tokens = sequence.resolve(part);
            let mut hash = sequence.hash(part.start.0 as usize).unwrap_or(0);
            let num_committed = part.query.len() - part.num_drafts as usize;
            sequence
                .flights
                .push(Flight::of(step.plan.step, part, tokens.clone()));
            let mut writes = part.rows.writes.iter().peekable();
            for (idx, token) in tokens.iter().enumerate().filter(|_| step.filled.is_some()) {
                hash = sequence::follow(hash, *token);
                let pos = part.start.0 + idx as u32;
                let slot = Slot {
                    hash,
                    seq: part.seq,
                    is_draft: idx >= num_committed,
                };
                self.slots
                    .insert((part.slot(Pos(pos)).0, pos % BLOCK_LEN), slot);
                while let Some(write) = writes.next_if(|write| write.query_idx as usize == idx) {
                    let row = Row {
                        hash,
                        len: pos as usize + 1,
                        seq: part.seq,
                    };
                    self.rows.insert(write.row, row);
                }
            }
        }
    }

    /// Notes what a step that is not answered yet has drawn: plans may refer to it.
    fn draw(&mut self, step: &Recorded<'_>) {
        for (idx, part) in step.plan.seqs.iter().enumerate() {
            let draws = step.output.and_then(|output| output.seqs.get(idx));
            let draws = draws.and_then(|answer| answer.draws.as_ref().ok());
            let last = draws.and_then(|draws| draws.get(part.num_drafts as usize));
            if let Some(sequence) = self.sequences.get_mut(&part.seq) {
                sequence.drew(step.plan.step, last.map(|draw| draw.token));
            }
        }
    }

    /// Lets sequences grow by what a step drew.
    fn answer(&mut self, step: &Recorded<'_>) {
        for (idx, part) in step.plan.seqs.iter().enumerate() {
            let Some(sequence) = self.sequences.get_mut(&part.seq) else {
                continue;
            };
            let draws = step.output.and_then(|output| output.seqs.get(idx));
            let draws = draws.and_then(|answer| answer.draws.as_ref().ok());
            let draws: Option<Vec<TokenId>> = draws.map(|draws| {
                let known = draws.iter().take(num_known(part, step.filled));
                known.map(|draw| draw.token).collect()
            });
            let lost_at = sequence.lost_at();
            let Some(fate) = sequence.answer(step.plan.step, draws.as_deref()) else {
                continue;
            };
            let grew = fate.counts && draws.is_some_and(|draws| !draws.is_empty());
            if lost_at.is_some() && grew {
                sequence.grew_late = Some(step.plan.step);
            }
            self.seen.fates.insert((step.plan.step, part.seq), fate);
        }
    }
}

/// Scored positions whose draws may count: those before the first whose mask was left out.
fn num_known(part: &SeqPlan, filled: Option<&[bool]>) -> usize {
    let is_known = |scored: &&ScoredPosition| match scored.mask {
        None => true,
        Some(row) => filled.is_some_and(|filled| filled.get(row.0 as usize) == Some(&true)),
    };
    part.scored.iter().take_while(is_known).count()
}
