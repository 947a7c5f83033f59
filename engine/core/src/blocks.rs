//! The blocks of the KV cache: who owns each, and which step in flight still names it.
//! This is the only place that gives blocks out; it must never know what is in them.

use crate::{EngineFault, leases::LeasePool};
use alloc::vec::Vec;
use lockstep_step::BlockId;

/// Blocks, free and held.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool(LeasePool);

impl BlockPool {
    pub(crate) fn new(num_blocks: u32) -> BlockPool {
        BlockPool(LeasePool::new("block", num_blocks))
    }

    pub(crate) fn num_free(&self) -> usize {
        self.0.num_free()
    }

    /// Free ones, and those that only the cache holds.
    pub(crate) fn num_available(&self) -> usize {
        self.0.num_available()
    }

    /// Extends a table to `len` blocks, all of them or none. True if it has as many now.
    #[must_use]
    pub(crate) fn extend(&mut self, table: &mut Vec<BlockId>, len: usize) -> bool {
        // The check and the use are one place: nothing can change in between.
        let wanted = len.saturating_sub(table.len());
        if wanted > self.0.num_free() {
            return false;
        }
        table.extend((0..wanted).filter_map(|_| self.0.take()).map(BlockId));
        true
    }

    /// Shortens a table to `len` blocks and releases the rest, the last one first: what is cached becomes
    /// idle in that order, and without a block the cache can't use those after it.
    pub(crate) fn truncate(
        &mut self,
        table: &mut Vec<BlockId>,
        len: usize,
    ) -> Result<(), EngineFault> {
        while table.len() > len {
            if let Some(block) = table.pop() {
                self.0.release(block.0)?;
            }
        }
        Ok(())
    }

    /// Adds an owner to a block that is held or cached.
    pub(crate) fn share(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.0.share(block.0)
    }

    /// Gives up one ownership.
    pub(crate) fn release(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.0.release(block.0)
    }

    /// Marks blocks as named by a step in flight.
    pub(crate) fn lease(&mut self, blocks: &[BlockId]) -> Result<(), EngineFault> {
        blocks.iter().try_for_each(|block| self.0.lease(block.0))
    }

    /// Ends what [`lease`](Self::lease) began, the last block first.
    pub(crate) fn end_lease(&mut self, blocks: &[BlockId]) -> Result<(), EngineFault> {
        let mut from_last = blocks.iter().rev();
        from_last.try_for_each(|block| self.0.end_lease(block.0))
    }

    /// Lets the cache hold a block too.
    pub(crate) fn cache(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.0.cache(block.0)
    }

    /// The cache gives a block up.
    pub(crate) fn uncache(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.0.uncache(block.0)
    }

    pub(crate) fn is_idle(&self, block: BlockId) -> bool {
        self.0.is_idle(block.0)
    }

    /// The block that only the cache has held for longest.
    pub(crate) fn oldest_idle(&self) -> Option<BlockId> {
        self.0.oldest_idle().map(BlockId)
    }

    pub(crate) fn pool(&self) -> &LeasePool {
        &self.0
    }
}

#[cfg(test)]
mod tests;
