//! The blocks of the KV cache: who owns each, and which may still be named by a step in flight.
//! This is the only place that gives blocks out; it must never know what is in them.
//!
//! A step names blocks of tables, and these stay owned by their tables for as long as they are in them. So
//! nothing has to be noted of what a step names: it is enough that what is given up while steps run is leased
//! to all of these, and free when the last of them has ended.

use crate::{EngineFault, leases::LeasePool};
use alloc::{collections::VecDeque, vec::Vec};
use lockstep_step::{BlockId, planted};

/// Blocks, free and held.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    pool: LeasePool,
    num_begun: u64,
    num_ended: u64,
    /// What was given up while steps ran, with how many had begun by then; oldest first. Leased.
    given_up: VecDeque<(u64, BlockId)>,
}

impl BlockPool {
    pub(crate) fn new(num_blocks: u32) -> BlockPool {
        BlockPool {
            pool: LeasePool::new("block", num_blocks),
            num_begun: 0,
            num_ended: 0,
            given_up: VecDeque::new(),
        }
    }

    pub(crate) fn num_free(&self) -> usize {
        self.pool.num_free()
    }

    /// Free ones, and those that only the cache holds.
    pub(crate) fn num_available(&self) -> usize {
        self.pool.num_available()
    }

    /// Extends a table to `len` blocks, all of them or none. True if it has as many now.
    #[must_use]
    pub(crate) fn extend(&mut self, table: &mut Vec<BlockId>, len: usize) -> bool {
        // The check and the use are one place: nothing can change in between.
        let wanted = len.saturating_sub(table.len());
        if wanted > self.pool.num_free() {
            return false;
        }
        table.extend((0..wanted).filter_map(|_| self.pool.take()).map(BlockId));
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
                self.release(block)?;
            }
        }
        Ok(())
    }

    /// Adds an owner to a block that is held or cached.
    pub(crate) fn share(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.pool.share(block.0)
    }

    /// Gives up one ownership. Steps in flight may name the block until the last of them has ended.
    pub(crate) fn release(&mut self, block: BlockId) -> Result<(), EngineFault> {
        // Planted: vllm-project/vllm#45357.
        if self.num_begun > self.num_ended && !planted!(FreeWhileNextStepInFlight) {
            self.pool.lease(block.0)?;
            self.given_up.push_back((self.num_begun, block));
        }
        self.pool.release(block.0)
    }

    /// A step begins: it may name whatever is owned now.
    pub(crate) fn begin_step(&mut self) {
        self.num_begun += 1;
    }

    /// The oldest step has ended.
    pub(crate) fn end_step(&mut self) -> Result<(), EngineFault> {
        self.num_ended += 1;
        while let Some(&(num_begun, block)) = self.given_up.front()
            && num_begun <= self.num_ended
        {
            self.given_up.pop_front();
            self.pool.end_lease(block.0)?;
        }
        Ok(())
    }

    /// Takes what was given up to be named by no step.
    #[cfg(planted)]
    pub(crate) fn forget_steps(&mut self) -> Result<(), EngineFault> {
        let mut blocks = core::mem::take(&mut self.given_up).into_iter();
        blocks.try_for_each(|(_, block)| self.pool.end_lease(block.0))
    }

    /// What steps in flight may still name and nobody owns for that, each as often as it was given up.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.given_up.iter().map(|&(_, block)| block)
    }

    /// Lets the cache hold a block too.
    pub(crate) fn cache(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.pool.cache(block.0)
    }

    /// The cache gives a block up.
    pub(crate) fn uncache(&mut self, block: BlockId) -> Result<(), EngineFault> {
        self.pool.uncache(block.0)
    }

    pub(crate) fn is_idle(&self, block: BlockId) -> bool {
        self.pool.is_idle(block.0)
    }

    /// The block that only the cache has held for longest.
    pub(crate) fn oldest_idle(&self) -> Option<BlockId> {
        self.pool.oldest_idle().map(BlockId)
    }

    pub(crate) fn pool(&self) -> &LeasePool {
        &self.pool
    }
}

#[cfg(test)]
mod tests;
