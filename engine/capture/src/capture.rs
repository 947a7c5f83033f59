//! A capture in memory: records put where a reader looks for them, by step and by sequence. It must never invent
//! what was not recorded.

use crate::format::{Contents, Damage};
use crate::record::{EventRecord, Header, News, OpRecord, Record, RequestRecord, StreamRecord};
use lockstep_step::{Digest, Proposal, ProposalPlan, SeqId, StepId, StepOutput, StepPlan};
use std::collections::{BTreeMap, BTreeSet};

/// A step, as far as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What was planned; only parts of sequences that are here, where the capture was taken out of a longer one.
    pub plan: StepPlan,
    /// Per mask row, where masks were filled at all.
    pub masks: Option<Vec<Option<Digest>>>,
    /// What it came to.
    pub output: Option<Result<StepOutput, String>>,
    /// Whether it was started before the step before it was answered.
    pub is_ahead: bool,
    /// Digests of operations, where they were asked for.
    pub ops: Vec<OpRecord>,
}

/// A capture, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Capture {
    /// What holds for all of it.
    pub header: Header,
    /// By number.
    pub steps: BTreeMap<StepId, Step>,
    /// By the engine's name.
    pub requests: BTreeMap<SeqId, RequestRecord>,
    /// In order, with the step that was answered last before it.
    pub events: Vec<(Option<StepId>, EventRecord)>,
    /// In order.
    pub streams: Vec<StreamRecord>,
    /// What models were asked before a step, and what they proposed.
    pub proposals: Vec<(StepId, ProposalPlan, Vec<Proposal>)>,
    /// Sequences whose reader went away.
    pub left: BTreeSet<SeqId>,
    /// Why the loop ended, if it did.
    pub end: Option<String>,
    /// Where the file can't be read on.
    pub damage: Option<Damage>,
    /// What contradicts itself: records of steps that never began, sequences that nobody asked for.
    pub oddities: Vec<String>,
}

impl Capture {
    /// What the bytes of a file hold.
    ///
    /// # Errors
    /// If they are no capture.
    pub fn of_bytes(bytes: &[u8]) -> Result<Capture, crate::FormatError> {
        Ok(Capture::new(crate::format::read(bytes)?))
    }

    /// Records, put in their places.
    pub fn new(contents: Contents) -> Capture {
        let mut capture = Capture {
            header: contents.header,
            steps: BTreeMap::new(),
            requests: BTreeMap::new(),
            events: Vec::new(),
            streams: Vec::new(),
            proposals: Vec::new(),
            left: BTreeSet::new(),
            end: None,
            damage: contents.damage,
            oddities: Vec::new(),
        };
        let mut answered = None;
        for (idx, record) in contents.records.into_iter().enumerate() {
            capture.take(idx, record, &mut answered);
        }
        capture
    }

    fn take(&mut self, idx: usize, record: Record, answered: &mut Option<StepId>) {
        match record {
            Record::Request(request) => {
                let seq = request.seq;
                if self.requests.insert(seq, *request).is_some() {
                    self.odd(idx, format!("{seq:?} was asked for twice"));
                }
            }
            Record::Left(seq) => drop(self.left.insert(seq)),
            Record::Plan(plan) => self.plan(idx, plan),
            Record::Masks(id, rows) => match self.steps.get_mut(&id) {
                Some(step) if step.masks.is_none() => step.masks = Some(rows),
                _ => self.odd(idx, format!("masks of step {id}, which awaits none")),
            },
            Record::Output(id, output) => {
                *answered = Some(id);
                match self.steps.get_mut(&id) {
                    Some(step) if step.output.is_none() => step.output = Some(output),
                    _ => self.odd(idx, format!("an output of step {id}, which awaits none")),
                }
            }
            Record::Proposals(step, plan, proposals) => {
                self.proposals.push((step, plan, proposals));
            }
            Record::Event(event) => self.events.push((*answered, event)),
            Record::Stream(stream) => self.streams.push(stream),
            Record::Ops(id, ops) => match self.steps.get_mut(&id) {
                Some(step) => step.ops.extend(ops),
                None => self.odd(idx, format!("operations of step {id}, which never began")),
            },
            Record::End(reason) => self.end = Some(reason),
            Record::Lost(num) => self.odd(idx, format!("{num} records are missing here")),
        }
    }

    fn plan(&mut self, idx: usize, plan: StepPlan) {
        let id = plan.step;
        let last = self.steps.values().next_back();
        let is_ahead = last.is_some_and(|last| last.output.is_none());
        let is_late = self
            .steps
            .keys()
            .next_back()
            .is_some_and(|last| *last >= id);
        if is_late {
            return self.odd(idx, format!("step {id} is planned after a later one"));
        }
        let step = Step {
            plan,
            masks: None,
            output: None,
            is_ahead,
            ops: Vec::new(),
        };
        self.steps.insert(id, step);
    }

    fn odd(&mut self, idx: usize, what: String) {
        self.oddities.push(format!("record {idx}: {what}"));
    }

    /// Events of one sequence, with the step that was answered last before each.
    pub fn events_of(&self, seq: SeqId) -> impl Iterator<Item = (Option<StepId>, &News)> {
        let own = self.events.iter().filter(move |(_, own)| own.seq == seq);
        own.map(|(step, event)| (*step, &event.news))
    }

    /// The sequences of a request, in order of choice.
    pub fn seqs_of(&self, request_id: &str) -> Vec<SeqId> {
        let own = self.requests.values();
        let own = own.filter(|request| request.request_id == request_id);
        let mut own: Vec<(u32, SeqId)> = own.map(|own| (own.choice, own.seq)).collect();
        own.sort_unstable();
        own.into_iter().map(|(_, seq)| seq).collect()
    }
}
