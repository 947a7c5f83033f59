//! Writes down what an engine does while it does it: a backend that notes what passes through it, and what the loop
//! around the engine tells. One record is encoded where it happens and handed on; nothing here waits for a disk.
//!
//! It must never change what passes through it, nor fail for reasons of its own.

use crate::format::framed;
use crate::record::{EventRecord, OpRecord, Record, Redaction, RequestRecord, StreamRecord, Text};
use crate::redact::Redactor;
use lockstep_core::{Event, Refusal, Request};
use lockstep_step::{
    Backend, BackendError, BackendLimits, MaskSet, ModelDrafter, OpDigest, Proposal, ProposalPlan,
    SeqId, StepId, StepOutput, StepPlan,
};
use std::sync::{Arc, Mutex, PoisonError};

/// Where records go. It is called by the loop of the engine, which waits for it.
pub trait Sink: Send + Sync {
    /// Takes a record that was framed already. `about` says whose it is, where it is about one request or its
    /// sequence.
    fn take(&self, frame: Vec<u8>, about: About<'_>);
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    /// All requests, or those of these sequences.
    Step(&'a [SeqId]),
    /// A new sequence of a request.
    Request(&'a str, SeqId),
    /// One sequence; `is_end` if nothing more comes of it.
    Seq {
        /// The sequence.
        seq: SeqId,
        /// Whether nothing more comes of it.
        is_end: bool,
    },
    /// The response to a request.
    Response(&'a str),
    /// The loop itself.
    Loop,
}

/// Everything in one buffer, without a bound: for tests and for short runs.
#[derive(Clone, Default)]
pub struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// The frames so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Sink for Buffer {
    fn take(&self, frame: Vec<u8>, _: About<'_>) {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend_from_slice(&frame);
    }
}

/// Notes what an engine does.
#[derive(Clone)]
pub struct Recorder {
    sink: Arc<dyn Sink>,
    redactor: Arc<Mutex<Redactor>>,
    submitting: Option<Box<RequestRecord>>,
}

impl Recorder {
    /// One that hands records to this sink, less what is left out. `key` keeps digests of tokens from being guessed;
    /// it is kept nowhere.
    pub fn new(sink: Arc<dyn Sink>, redaction: Redaction, key: u64) -> Recorder {
        Recorder {
            sink,
            redactor: Arc::new(Mutex::new(Redactor::new(redaction, key))),
            submitting: None,
        }
    }

    fn note(&self, mut record: Record, about: About<'_>) {
        self.redactor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .redact(&mut record);
        self.sink.take(framed(&record), about);
    }

    /// A choice of a request is about to be handed to the engine.
    pub fn submitting(&mut self, request_id: &str, choice: usize, request: &Request) {
        let record = RequestRecord::of(request_id, choice, request);
        self.submitting = Some(Box::new(record));
    }

    /// What became of it. What was refused is no sequence.
    pub fn submitted(&mut self, result: Result<SeqId, &Refusal>) {
        if let (Some(mut record), Ok(seq)) = (self.submitting.take(), result) {
            record.seq = seq;
            let id = record.request_id.clone();
            self.note(Record::Request(record), About::Request(&id, seq));
        }
    }

    /// Whoever would read this sequence is gone.
    pub fn left(&self, seq: SeqId) {
        self.note(Record::Left(seq), About::Seq { seq, is_end: true });
    }

    /// The engine has news.
    pub fn event(&self, event: &Event) {
        let record = EventRecord::of(event);
        let is_end = matches!(record.news, crate::record::News::Finished(_));
        let about = About::Seq {
            seq: event.seq,
            is_end,
        };
        self.note(Record::Event(record), about);
    }

    /// Bytes of a response were handed to the connection.
    pub fn streamed(&self, request_id: &str, bytes: &[u8], is_last: bool) {
        let record = StreamRecord {
            request_id: request_id.to_string(),
            bytes: Text::Plain(bytes.to_vec()),
            is_last,
        };
        self.note(Record::Stream(record), About::Response(request_id));
    }

    /// The loop has ended.
    pub fn ended(&self, reason: &str) {
        self.note(Record::End(reason.to_string()), About::Loop);
    }

    /// The same backend, noted.
    pub fn around<B: Backend>(&self, backend: B) -> Recorded<B> {
        Recorded {
            inner: backend,
            recorder: self.clone(),
            last_step: None,
            is_watched: false,
        }
    }
}

/// A backend of which everything is noted that passes through it.
pub struct Recorded<B> {
    inner: B,
    recorder: Recorder,
    last_step: Option<StepId>,
    is_watched: bool,
}

impl<B> Recorded<B> {
    fn outcome(&self, step: StepId, result: Result<&StepOutput, &BackendError>) {
        let seqs: Vec<SeqId> = match result {
            Ok(output) => output.seqs.iter().map(|own| own.seq).collect(),
            Err(_) => Vec::new(),
        };
        let result = result.cloned().map_err(ToString::to_string);
        self.recorder
            .note(Record::Output(step, result), About::Step(&seqs));
    }

    fn operations(&mut self, step: StepId)
    where
        B: Backend,
    {
        let ops = self.inner.take_ops(step);
        let mut seqs: Vec<SeqId> = ops.iter().map(|op| op.seq).collect();
        seqs.dedup();
        let ops = ops.into_iter().map(OpRecord::from).collect();
        self.recorder
            .note(Record::Ops(step, ops), About::Step(&seqs));
    }

    fn failed<T>(&self, step: StepId, result: Result<T, BackendError>) -> Result<T, BackendError> {
        if let Err(error) = &result {
            self.outcome(step, Err(error));
        }
        result
    }
}

impl<B: Backend> Backend for Recorded<B> {
    type Forward = (StepId, Vec<SeqId>, B::Forward);
    type Sampled = (StepId, B::Sampled);

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        self.last_step = Some(plan.step);
        let seqs: Vec<SeqId> = plan.seqs.iter().map(|own| own.seq).collect();
        self.recorder
            .note(Record::Plan(plan.clone()), About::Step(&seqs));
        let forward = self.inner.forward(plan);
        let forward = self.failed(plan.step, forward)?;
        Ok((plan.step, seqs, forward))
    }

    fn draw(
        &mut self,
        (step, seqs, forward): Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        let rows = masks.rows.iter();
        let rows = rows.map(|row| row.as_ref().map(lockstep_step::Bitmask::digest));
        let record = Record::Masks(step, rows.collect());
        self.recorder.note(record, About::Step(&seqs));
        let sampled = self.inner.draw(forward, masks);
        Ok((step, self.failed(step, sampled)?))
    }

    fn collect(&mut self, (step, sampled): Self::Sampled) -> Result<StepOutput, BackendError> {
        let output = self.inner.collect(sampled);
        if self.is_watched && output.is_ok() {
            self.operations(step);
        }
        self.outcome(step, output.as_ref());
        output
    }

    fn is_asynchronous(&self) -> bool {
        self.inner.is_asynchronous()
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.inner.has_drafter(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        let proposals = self.inner.propose(plan)?;
        let next = StepId(self.last_step.map_or(0, |last| last.0 + 1));
        let seqs: Vec<SeqId> = plan.seqs.iter().map(|own| own.seq).collect();
        let record = Record::Proposals(next, plan.clone(), proposals.clone());
        self.recorder.note(record, About::Step(&seqs));
        Ok(proposals)
    }

    fn watch_ops(&mut self, on: bool) -> bool {
        self.is_watched = self.inner.watch_ops(on) && on;
        self.is_watched
    }

    fn take_ops(&mut self, step: StepId) -> Vec<OpDigest> {
        // They are in the record; whoever else asks gets what is left.
        self.inner.take_ops(step)
    }
}
