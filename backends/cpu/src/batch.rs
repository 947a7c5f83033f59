//! A step as rows: the query tokens of all sequences, one after another. Which row a token has is decided
//! here once; kernels see rows and positions, and never ask whose they are.

use crate::kernels::{self, AllFinite};
use crate::{Isa, Pool};
use lockstep_step::{BlockId, Pos, SeqError, SeqPlan, TokenId};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// What computes: the instruction set and the threads.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'a> {
    pub(crate) isa: Isa,
    pub(crate) pool: &'a Pool,
}

/// The rows of a step.
pub(crate) struct Batch<'a> {
    pub(crate) seqs: &'a [SeqPlan],
    /// The token of each row.
    pub(crate) tokens: Vec<TokenId>,
    // The sequence of each row, as an index into `seqs`.
    owners: Vec<usize>,
    // The first row of each sequence.
    first_rows: Vec<usize>,
}

impl<'a> Batch<'a> {
    /// Rows for these sequences; `tokens` holds the token of each query token, in order.
    pub(crate) fn new(seqs: &'a [SeqPlan], tokens: Vec<TokenId>) -> Batch<'a> {
        let mut owners = Vec::with_capacity(tokens.len());
        let mut first_rows = Vec::with_capacity(seqs.len());
        for (idx, seq) in seqs.iter().enumerate() {
            first_rows.push(owners.len());
            owners.resize(owners.len() + seq.query.len(), idx);
        }
        assert_eq!(owners.len(), tokens.len(), "one token per row");
        Batch {
            seqs,
            tokens,
            owners,
            first_rows,
        }
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.tokens.len()
    }

    /// The rows of a sequence.
    pub(crate) fn rows(&self, seq_idx: usize) -> Range<usize> {
        let first = self.first_rows[seq_idx];
        first..first + self.seqs[seq_idx].query.len()
    }

    /// The sequence that a row belongs to, and the row's place in its query.
    pub(crate) fn owner(&self, row: usize) -> (usize, usize) {
        let seq_idx = self.owners[row];
        (seq_idx, row - self.first_rows[seq_idx])
    }

    /// The position of a row in its sequence.
    pub(crate) fn pos(&self, row: usize) -> Pos {
        let (seq_idx, query_idx) = self.owner(row);
        Pos(self.seqs[seq_idx].start.0 + query_idx as u32)
    }

    /// Where a row's key and value lie.
    pub(crate) fn slot(&self, row: usize) -> (BlockId, u32) {
        self.seqs[self.owners[row]].slot(self.pos(row))
    }
}

/// The operation whose output is being checked.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) name: &'static str,
    pub(crate) layer: Option<usize>,
}

/// Where numbers stopped being finite: the first operation that met it, per row.
pub(crate) struct Faults {
    by_row: Vec<Option<Op>>,
    // Rows marked since the last collection.
    marked: Vec<AtomicBool>,
    any_marked: AtomicBool,
}

impl Faults {
    pub(crate) fn new(num_rows: usize) -> Faults {
        Faults {
            by_row: vec![None; num_rows],
            marked: (0..num_rows).map(|_| AtomicBool::new(false)).collect(),
            any_marked: AtomicBool::new(false),
        }
    }

    /// Notes that a row is not finite.
    pub(crate) fn mark(&self, row: usize) {
        self.marked[row].store(true, Ordering::Relaxed);
        self.any_marked.store(true, Ordering::Relaxed);
    }

    /// Marks a row if one of its values is not finite.
    pub(crate) fn check(&self, isa: Isa, row: usize, x: &[f32]) {
        if !kernels::run(isa, AllFinite { x }) {
            self.mark(row);
        }
    }

    /// Ascribes the marks to an operation. An earlier fault of a row stands.
    pub(crate) fn collect(&mut self, op: Op) {
        if !self.any_marked.swap(false, Ordering::Relaxed) {
            return;
        }
        for (fault, marked) in self.by_row.iter_mut().zip(&self.marked) {
            if marked.swap(false, Ordering::Relaxed) {
                fault.get_or_insert(op);
            }
        }
    }

    /// The error of a position: that of the first faulty row of its sequence up to its own, since a position
    /// depends on all before it and on none after it.
    pub(crate) fn error_at(&self, batch: &Batch<'_>, row: usize) -> Option<SeqError> {
        let (seq_idx, _) = batch.owner(row);
        let rows = batch.rows(seq_idx).start..=row;
        let (row, op) = rows
            .into_iter()
            .find_map(|row| Some((row, self.by_row[row]?)))?;
        Some(SeqError::NotFinite {
            op: op.name.to_string(),
            layer: op.layer.map(|layer| layer as u32),
            pos: batch.pos(row),
        })
    }
}
