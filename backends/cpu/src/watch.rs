//! What is seen of operations as each ends, row by row: whether its results are finite, and, where somebody asks, their
//! digests. Whoever checks an operation watches it under the same name. It must never change a result, and padding is
//! never seen.

use crate::Isa;
use crate::batch::{Batch, Machine};
use crate::kernels::{self, AllFinite};
use lockstep_numerics::digest;
use lockstep_step::{Digest, NO_ID, OpDigest, SeqError, SeqId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An operation of the model.
#[derive(Clone, Copy)]
struct Op {
    name: &'static str,
    layer: Option<u32>,
}

/// Digests of what an operation computed.
struct Tap {
    op: Op,
    // Per row; None for a row that it did not compute.
    by_row: Vec<Option<Digest>>,
}

/// What was seen of a step.
pub(crate) struct Watch {
    layer: Option<u32>,
    // The first operation that met a number that is not finite, per row.
    faults: Vec<Option<Op>>,
    // Rows marked since the last operation ended.
    marked: Vec<AtomicBool>,
    any_marked: AtomicBool,
    // In the order of operations, where somebody asks for them.
    taps: Option<Vec<Tap>>,
}

impl Watch {
    /// For the rows of a batch. Padding is never at fault.
    pub(crate) fn of(batch: &Batch<'_>) -> Watch {
        let num_rows = batch.num_real_rows();
        Watch {
            layer: None,
            faults: vec![None; num_rows],
            marked: (0..num_rows).map(|_| AtomicBool::new(false)).collect(),
            any_marked: AtomicBool::new(false),
            taps: None,
        }
    }

    /// The same, with digests where they are wanted.
    pub(crate) fn with_digests(self, are_wanted: bool) -> Watch {
        Watch {
            taps: are_wanted.then(Vec::new),
            ..self
        }
    }

    /// Says which layer the next operations belong to.
    pub(crate) fn enter(&mut self, layer: Option<usize>) {
        self.layer = layer.map(|layer| layer as u32);
    }

    /// Notes that a row is not finite.
    pub(crate) fn mark(&self, row: usize) {
        if let Some(marked) = self.marked.get(row) {
            marked.store(true, Ordering::Relaxed);
            self.any_marked.store(true, Ordering::Relaxed);
        }
    }

    /// Marks a row if one of its values is not finite.
    pub(crate) fn check(&self, isa: Isa, row: usize, x: &[f32]) {
        if !kernels::run(isa, AllFinite { x }) {
            self.mark(row);
        }
    }

    /// An operation has ended: `values`, of `width` floats per row, are its results. The marks are ascribed to it; an
    /// earlier fault of a row stands.
    pub(crate) fn ended(
        &mut self,
        machine: Machine<'_>,
        name: &'static str,
        width: usize,
        values: &[f32],
    ) {
        self.collect(name);
        if self.taps.is_some() {
            let rows: Vec<u32> = (0..self.faults.len() as u32).collect();
            self.tap(machine, name, &rows, width, values);
        }
    }

    /// The same, where it computed only these rows, one after another.
    pub(crate) fn ended_at(
        &mut self,
        machine: Machine<'_>,
        name: &'static str,
        (rows, width): (&[u32], usize),
        values: &[f32],
    ) {
        self.collect(name);
        if self.taps.is_some() {
            self.tap(machine, name, rows, width, values);
        }
    }

    fn collect(&mut self, name: &'static str) {
        if !self.any_marked.swap(false, Ordering::Relaxed) {
            return;
        }
        let op = Op {
            name,
            layer: self.layer,
        };
        for (fault, marked) in self.faults.iter_mut().zip(&self.marked) {
            if marked.swap(false, Ordering::Relaxed) {
                fault.get_or_insert(op);
            }
        }
    }

    fn tap(
        &mut self,
        machine: Machine<'_>,
        name: &'static str,
        rows: &[u32],
        width: usize,
        values: &[f32],
    ) {
        let digests: Vec<AtomicU64> = rows.iter().map(|_| AtomicU64::new(0)).collect();
        machine.pool.run(rows.len(), &|idx| {
            let own = &values[idx * width..(idx + 1) * width];
            digests[idx].store(digest(own), Ordering::Relaxed);
        });
        let mut by_row = vec![None; self.faults.len()];
        for (&row, digest) in rows.iter().zip(digests) {
            if row != NO_ID {
                by_row[row as usize] = Some(Digest(digest.into_inner()));
            }
        }
        let op = Op {
            name,
            layer: self.layer,
        };
        self.taps.get_or_insert_default().push(Tap { op, by_row });
    }

    /// The error of a position: that of the first faulty row of its sequence up to its own, since a position
    /// depends on all before it and on none after it.
    pub(crate) fn error_at(&self, batch: &Batch<'_>, row: usize) -> Option<SeqError> {
        let (seq_idx, _) = batch.owner(row)?;
        let rows = batch.rows(seq_idx).start..=row;
        let (row, op) = rows
            .into_iter()
            .find_map(|row| Some((row, self.faults[row]?)))?;
        Some(SeqError::NotFinite {
            op: op.name.to_string(),
            layer: op.layer,
            pos: batch.pos(row),
        })
    }

    /// The digests of all operations, by row and then in the order of operations. `seqs` are those of the batch.
    pub(crate) fn digests(&self, batch: &Batch<'_>, seqs: &[SeqId]) -> Vec<OpDigest> {
        let taps = self.taps.as_deref().unwrap_or_default();
        let rows = (0..self.faults.len()).filter_map(|row| Some((row, batch.owner(row)?.0)));
        let of_row = |(row, seq_idx): (usize, usize)| {
            let own = taps.iter();
            own.filter_map(move |tap| {
                Some(OpDigest {
                    seq: seqs[seq_idx],
                    pos: batch.pos(row),
                    layer: tap.op.layer,
                    op: tap.op.name,
                    digest: tap.by_row[row]?,
                })
            })
        };
        rows.flat_map(of_row).collect()
    }
}
