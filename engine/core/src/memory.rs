//! What sequences compute into: blocks, rows, and the prefixes that were left in them. Every block and row
//! that a sequence gets or gives up goes through here, so that the cache gives way wherever a sequence needs
//! room. No choice made here can change what a sequence says.

use crate::blocks::BlockPool;
use crate::prefix::{BlockTokens, Found, PrefixTree};
use crate::rows::RowPool;
use crate::sequence::{Sequence, num_blocks_for};
use crate::{EngineFault, Totals};
use alloc::{string::String, sync::Arc, vec::Vec};
use lockstep_step::{BLOCK_LEN, BlockId, RowId, planted};

/// How a sequence stands to the prefix cache.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// Only prefixes of the same salt are shared.
    salt: Arc<str>,
    /// The first so many blocks of the table are nodes of the tree, one under the other.
    num_blocks: usize,
    /// A length at which others went on differently: a state left there is of use to the next.
    branch_len: usize,
    /// Tokens found when it was first admitted; none before that.
    num_cached_tokens: Option<usize>,
}

impl Cursor {
    pub(crate) fn new(salt: String) -> Cursor {
        Cursor {
            salt: salt.into(),
            num_blocks: 0,
            branch_len: 0,
            num_cached_tokens: None,
        }
    }

    /// Tokens found when the sequence was first admitted.
    pub(crate) fn num_cached_tokens(&self) -> usize {
        self.num_cached_tokens.unwrap_or(0)
    }
}

/// The rows that a part of a step writes: those to keep, and those to go on from.
pub(crate) type StepRows = (Vec<RowId>, Vec<RowId>);

/// Blocks, rows, and the cache over both.
pub(crate) struct Memory {
    pub(crate) blocks: BlockPool,
    pub(crate) rows: RowPool,
    /// None where prefixes aren't kept.
    tree: Option<PrefixTree>,
    /// Counted here, of the engine's totals: what concerns the cache.
    counted: Totals,
}

impl Memory {
    pub(crate) fn new(num_blocks: u32, num_rows: u32, keeps_prefixes: bool) -> Memory {
        Memory {
            blocks: BlockPool::new(num_blocks),
            rows: RowPool::new(num_rows),
            tree: keeps_prefixes.then(PrefixTree::default),
            counted: Totals::default(),
        }
    }

    /// Gives a sequence that holds nothing what is known of its tokens, and blocks for the rest of them.
    /// False if there is no room; nothing is taken then. At least one token stays to be computed.
    pub(crate) fn admit(&mut self, seq: &mut Sequence) -> Result<bool, EngineFault> {
        let num_blocks = num_blocks_for(seq.token_ids.len());
        // No walk down the tree could help: what is found makes room only where others hold it too.
        if num_blocks > self.blocks.num_available() + self.num_cached_and_held() {
            return Ok(false);
        }
        let found = self.find(seq);
        let (num_found, row) = if self.rows.is_used() {
            // Blocks and state must hold the same tokens.
            found
                .state
                .map_or((0, None), |(num_blocks, row)| (num_blocks, Some(row)))
        } else {
            (found.blocks.len(), None)
        };
        // Planted: vllm-project/vllm#43090.
        let num_found = match planted!(MixedHitScalarHasInitialState) && row.is_some() {
            true => found.blocks.len(),
            false => num_found,
        };
        let shared = &found.blocks[..num_found];
        let num_idle = shared.iter().filter(|&&block| self.blocks.is_idle(block));
        // What is found and idle can't make room.
        if num_blocks - num_found + num_idle.count() > self.blocks.num_available() {
            return Ok(false);
        }
        for &block in shared {
            self.blocks.share(block)?;
        }
        // Planted: vllm-project/tpu-inference#3412.
        let row = match row {
            Some(_) if planted!(HitRowReadsFreshSlot) => {
                self.take_rows(1)?.and_then(|rows| rows.first().copied())
            }
            Some(row) => {
                self.rows.share(row)?;
                Some(row)
            }
            None => None,
        };
        seq.block_table = shared.to_vec();
        seq.row = row;
        seq.num_computed_tokens = num_found * BLOCK_LEN as usize;
        seq.cursor.num_blocks = num_found;
        seq.cursor.branch_len = found.blocks.len() * BLOCK_LEN as usize;
        self.extend(&mut seq.block_table, num_blocks)
    }

    /// Blocks of the tree that are not idle.
    fn num_cached_and_held(&self) -> usize {
        let num_nodes = self.tree.as_ref().map_or(0, PrefixTree::len);
        num_nodes - self.blocks.pool().num_idle()
    }

    fn find(&self, seq: &Sequence) -> Found {
        // Planted: EricLBuehler/mistral.rs#1377.
        let num_left = usize::from(!planted!(PrefixHitConsumesAllTokens));
        let known = &seq.token_ids[..seq.token_ids.len() - num_left];
        // Planted: vllm-project/vllm#54342.
        let salt = match planted!(ExternalKeyDropsSalt) {
            true => "",
            false => &seq.cursor.salt,
        };
        let tree = self.tree.as_ref();
        tree.map_or_else(Found::default, |tree| tree.find(salt, known))
    }

    /// Counts what an admission found, once the sequence does run.
    pub(crate) fn count_admission(&mut self, seq: &mut Sequence) {
        if self.tree.is_none() {
            return;
        }
        let (num_found, num_tokens) = (seq.num_computed_tokens, seq.token_ids.len());
        if seq.cursor.num_cached_tokens.is_none() {
            seq.cursor.num_cached_tokens = Some(num_found);
            self.counted.num_looked_up_tokens += num_tokens as u64;
            self.counted.num_cached_tokens += num_found as u64;
        } else {
            self.counted.num_recovered_tokens += num_found as u64;
        }
    }

    /// Extends a table to `len` blocks, all of them or none. True if it has as many now. The prefixes that
    /// were of no use for longest give way.
    pub(crate) fn extend(
        &mut self,
        table: &mut Vec<BlockId>,
        len: usize,
    ) -> Result<bool, EngineFault> {
        let wanted = len.saturating_sub(table.len());
        if wanted > self.blocks.num_available() {
            return Ok(false);
        }
        while self.blocks.num_free() < wanted {
            let Some(block) = self.blocks.oldest_idle() else {
                return Ok(false);
            };
            self.evict(block)?;
        }
        Ok(self.blocks.extend(table, len))
    }

    /// Takes the rows that a step writes, so many to keep and so many to go on from, all or none. Nothing where
    /// the model has no rows.
    pub(crate) fn take_step_rows(
        &mut self,
        num_kept: usize,
        num_writes: usize,
    ) -> Result<Option<StepRows>, EngineFault> {
        if !self.rows.is_used() {
            return Ok(Some((Vec::new(), Vec::new())));
        }
        if num_kept + num_writes > self.rows.num_available() {
            return Ok(None);
        }
        let kept = self.take_rows(num_kept)?;
        Ok(kept.zip(self.take_rows(num_writes)?))
    }

    /// Takes rows, all or none. The states that were of no use for longest give way.
    pub(crate) fn take_rows(&mut self, num_rows: usize) -> Result<Option<Vec<RowId>>, EngineFault> {
        if num_rows > self.rows.num_available() {
            return Ok(None);
        }
        while self.rows.num_free() < num_rows {
            let Some(row) = self.rows.oldest_idle() else {
                return Ok(None);
            };
            // Planted: local-inference-lab/vllm#480.
            if let Some(tree) = &mut self.tree
                && !planted!(PhantomHitAfterEviction)
            {
                tree.remove_row(row);
            }
            self.rows.uncache(row)?;
            self.counted.num_evicted_rows += 1;
        }
        Ok(self.rows.take(num_rows))
    }

    /// Forgets a prefix, and those that go on from it. Blocks become idle from the last to the first, so
    /// that there seldom is one.
    fn evict(&mut self, block: BlockId) -> Result<(), EngineFault> {
        let tree = self.tree.as_mut();
        let removed = tree.map_or(Vec::new(), |tree| tree.remove(block));
        if removed.is_empty() {
            return Err(self.blocks.pool().misuse(block.0, "evict"));
        }
        for (block, row) in removed {
            self.blocks.uncache(block)?;
            self.counted.num_evicted_blocks += 1;
            if let Some(row) = row {
                self.rows.uncache(row)?;
                self.counted.num_evicted_rows += 1;
            }
        }
        Ok(())
    }

    /// Rows that can be had when each of so many sequences has had the one it needs; without end where the
    /// model has none.
    pub(crate) fn spare_rows(&self, num_seqs: usize) -> usize {
        match self.rows.is_used() {
            true => self.rows.num_available().saturating_sub(num_seqs),
            false => usize::MAX,
        }
    }

    /// Rows for drafts, beside the one that each of so many sequences needs. Drafts come back with every step,
    /// so they leave the cache a quarter of all rows: a state is worth a prompt, a draft at most a token.
    pub(crate) fn rows_for_drafts(&self, num_seqs: usize) -> usize {
        let num_left = self.rows.pool().num_idle().min(self.rows.len() / 4);
        self.spare_rows(num_seqs + num_left)
    }

    /// Lengths inside `start..end`, both aside, after which the state is worth keeping: where the next
    /// equal prompt can go on, and where others went on differently. In ascending order.
    pub(crate) fn lengths_to_keep(&self, seq: &Sequence, start: usize, end: usize) -> Vec<usize> {
        // A single token has no inside.
        if self.tree.is_none() || !self.rows.is_used() || end - start < 2 {
            return Vec::new();
        }
        let last = seq.token_ids.len() - 1;
        let last = last - last % BLOCK_LEN as usize;
        let mut lengths = Vec::from([seq.cursor.branch_len, last]);
        lengths.retain(|&len| start < len && len < end);
        lengths.dedup();
        lengths
    }

    /// Lets others find what a sequence has computed: every full block of committed tokens, and the states
    /// that its step left at their ends; `state` says where there is one. Where an equal block is there
    /// already, the sequence goes on with that one, so that it holds each node up to its own.
    ///
    /// Nothing before `num_computed_tokens` is ever written again, so a step that still names the
    /// sequence's own block, which its lease keeps, reads the same from either.
    pub(crate) fn publish(
        &mut self,
        seq: &mut Sequence,
        state: impl Fn(usize) -> Option<RowId>,
    ) -> Result<(), EngineFault> {
        let Some(tree) = &mut self.tree else {
            return Ok(());
        };
        let (full, _): (&[BlockTokens], _) = seq.token_ids[..seq.num_computed_tokens].as_chunks();
        for (idx, tokens) in full.iter().enumerate().skip(seq.cursor.num_blocks) {
            let own = seq.block_table[idx];
            let before = idx.checked_sub(1).map(|before| seq.block_table[before]);
            let node = match tree.child(&seq.cursor.salt, before, tokens) {
                Some(node) => {
                    // Planted: sgl-project/sglang#27038.
                    if !planted!(CowReleasesTooManyLocks) {
                        self.blocks.share(node)?;
                    }
                    self.blocks.release(own)?;
                    seq.block_table[idx] = node;
                    node
                }
                None => {
                    tree.insert(&seq.cursor.salt, before, tokens, own);
                    self.blocks.cache(own)?;
                    own
                }
            };
            seq.cursor.num_blocks = idx + 1;
            let mut len = (idx + 1) * BLOCK_LEN as usize;
            // Planted: vllm-project/vllm#47861.
            if planted!(MtpDropOnStateGroup) {
                len += BLOCK_LEN as usize;
            }
            if let Some(row) = state(len)
                && tree.lacks_row(node)
            {
                tree.set_row(node, row);
                // Planted: waybarrios/vllm-mlx#744.
                if !planted!(HybridSnapshotAdvancedInPlace) {
                    self.rows.cache(row)?;
                }
            }
        }
        Ok(())
    }

    /// Lets others find what a sequence is about to compute, up to a length.
    #[cfg(planted)]
    pub(crate) fn publish_early(
        &mut self,
        seq: &mut Sequence,
        len: usize,
    ) -> Result<(), EngineFault> {
        let len = len.min(seq.token_ids.len());
        let num_computed = core::mem::replace(&mut seq.num_computed_tokens, len);
        let published = self.publish(seq, |_| None);
        seq.num_computed_tokens = num_computed;
        published
    }

    /// Takes everything from a sequence. What a running step names stays held by its lease, and what was
    /// published can be found again.
    pub(crate) fn release(&mut self, seq: &mut Sequence) -> Result<(), EngineFault> {
        self.blocks.truncate(&mut seq.block_table, 0)?;
        if let Some(row) = seq.row.take() {
            self.rows.release(row)?;
        }
        seq.num_computed_tokens = 0;
        seq.cursor.num_blocks = 0;
        seq.cursor.branch_len = 0;
        Ok(())
    }

    /// The engine's totals with those that are counted here.
    pub(crate) fn add_totals(&self, totals: Totals) -> Totals {
        Totals {
            num_looked_up_tokens: self.counted.num_looked_up_tokens,
            num_cached_tokens: self.counted.num_cached_tokens,
            num_recovered_tokens: self.counted.num_recovered_tokens,
            num_evicted_blocks: self.counted.num_evicted_blocks,
            num_evicted_rows: self.counted.num_evicted_rows,
            ..totals
        }
    }

    /// The tree and the pools say the same of what is cached. Slow; for tests.
    pub(crate) fn check_tree(&self) -> Result<(), EngineFault> {
        let tree = self.tree.as_ref();
        if tree.is_some_and(|tree| !tree.is_sound()) {
            return Err(self.blocks.pool().misuse(0, "find in the tree"));
        }
        for (id, _, _) in self.blocks.pool().held() {
            let is_node = tree.is_some_and(|tree| tree.holds_block(BlockId(id)));
            if is_node != self.blocks.pool().is_cached(id) {
                return Err(self.blocks.pool().misuse(id, "find in the tree"));
            }
        }
        for (id, _, _) in self.rows.pool().held() {
            let is_state = tree.is_some_and(|tree| tree.holds_row(RowId(id)));
            if is_state != self.rows.pool().is_cached(id) {
                return Err(self.rows.pool().misuse(id, "find in the tree"));
            }
        }
        Ok(())
    }

    /// Tokens in the chain of full blocks that these begin with. For tests.
    #[cfg(test)]
    pub(crate) fn num_findable(&self, salt: &str, tokens: &[lockstep_step::TokenId]) -> usize {
        let tree = self.tree.as_ref();
        let blocks = tree.map_or(Vec::new(), |tree| tree.find(salt, tokens).blocks);
        blocks.len() * BLOCK_LEN as usize
    }

    /// Whether a sequence's table begins with the nodes that its cursor counts, and these are all its full
    /// blocks. Slow; for tests.
    pub(crate) fn is_on_its_nodes(&self, seq: &Sequence) -> bool {
        let Some(tree) = &self.tree else {
            return seq.cursor.num_blocks == 0;
        };
        let computed = &seq.token_ids[..seq.num_computed_tokens];
        let num_full = computed.len() / BLOCK_LEN as usize;
        let found = tree.find(&seq.cursor.salt, computed).blocks;
        seq.cursor.num_blocks == num_full && found == seq.block_table[..num_full]
    }
}
