//! The rows of recurrent state. A running sequence owns one, and each step writes into others: a row that
//! is read in a step is never written in it, so that a step can be computed twice and taken back. It also
//! means that a row can have several owners: whoever goes on from it leaves it as it is.

use crate::{EngineFault, leases::LeasePool};
use alloc::vec::Vec;
use lockstep_step::RowId;

/// Rows that a running sequence can always have: the one it reads and the one it writes. Overlapped it
/// writes a third, before the first comes back.
pub(crate) const ROWS_PER_SEQ: usize = 2;

/// Rows, free and held. Empty for a model without recurrent state.
#[derive(Clone, Debug)]
pub(crate) struct RowPool {
    pool: LeasePool,
    len: usize,
}

impl RowPool {
    pub(crate) fn new(num_rows: u32) -> RowPool {
        RowPool {
            pool: LeasePool::new("row", num_rows),
            len: num_rows as usize,
        }
    }

    /// Whether the model has rows at all.
    pub(crate) fn is_used(&self) -> bool {
        self.len > 0
    }

    /// All rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn num_free(&self) -> usize {
        self.pool.num_free()
    }

    /// Free ones, and those that only the cache holds.
    pub(crate) fn num_available(&self) -> usize {
        self.pool.num_available()
    }

    /// How many sequences can run at once; one always can.
    pub(crate) fn seqs_max(&self, is_overlapped: bool) -> usize {
        if self.is_used() {
            (self.len / (ROWS_PER_SEQ + usize::from(is_overlapped))).max(1)
        } else {
            usize::MAX
        }
    }

    /// Takes rows, all or none.
    pub(crate) fn take(&mut self, num_rows: usize) -> Option<Vec<RowId>> {
        if num_rows > self.pool.num_free() {
            return None;
        }
        let mut rows = Vec::with_capacity(num_rows);
        rows.extend((0..num_rows).filter_map(|_| self.pool.take()).map(RowId));
        Some(rows)
    }

    /// Adds an owner to a row that is held or cached.
    pub(crate) fn share(&mut self, row: RowId) -> Result<(), EngineFault> {
        self.pool.share(row.0)
    }

    /// Gives up one ownership.
    pub(crate) fn release(&mut self, row: RowId) -> Result<(), EngineFault> {
        self.pool.release(row.0)
    }

    /// Marks a row as named by a step in flight.
    pub(crate) fn lease(&mut self, row: RowId) -> Result<(), EngineFault> {
        self.pool.lease(row.0)
    }

    /// Ends what [`lease`](Self::lease) began.
    pub(crate) fn end_lease(&mut self, row: RowId) -> Result<(), EngineFault> {
        self.pool.end_lease(row.0)
    }

    /// Lets the cache hold a row too.
    pub(crate) fn cache(&mut self, row: RowId) -> Result<(), EngineFault> {
        self.pool.cache(row.0)
    }

    /// The cache gives a row up.
    pub(crate) fn uncache(&mut self, row: RowId) -> Result<(), EngineFault> {
        self.pool.uncache(row.0)
    }

    /// The row that only the cache has held for longest.
    pub(crate) fn oldest_idle(&self) -> Option<RowId> {
        self.pool.oldest_idle().map(RowId)
    }

    pub(crate) fn pool(&self) -> &LeasePool {
        &self.pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_a_step_reads_is_not_given_out_when_its_owner_leaves() {
        let mut rows = RowPool::new(2);
        let row = rows.take(1).expect("two are free")[0];
        rows.lease(row).expect("it is owned");
        rows.release(row).expect("it is owned");
        assert_eq!(rows.take(2), None, "the step still reads one of the two");
        assert_eq!(rows.take(1), Some(alloc::vec![RowId(1)]));
        rows.end_lease(row).expect("it was leased");
        assert_eq!(rows.take(1), Some(alloc::vec![row]));
        assert!(rows.end_lease(row).is_err(), "nobody leases it now");
    }
}
