//! The tree of cached prefixes: one node per full block of computed tokens, under the block before it. A
//! node is found by its tokens themselves and by no hash of them, so that nothing can ever be taken for
//! something else; salts have trees of their own. It knows which block and row hold what, and must never
//! know who else holds them: that is `memory.rs`.

use alloc::{collections::BTreeMap, sync::Arc, vec, vec::Vec};
#[cfg(planted)]
use lockstep_step::planted;
use lockstep_step::{BLOCK_LEN, BlockId, RowId, TokenId};

/// Tokens of a full block.
pub(crate) type BlockTokens = [TokenId; BLOCK_LEN as usize];

type Children = BTreeMap<Arc<BlockTokens>, BlockId>;

/// Where a node hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parent {
    /// It is the first block of a sequence with this salt.
    Salt(Arc<str>),
    /// It follows this block.
    Block(BlockId),
}

/// A full block of computed tokens. Its id is that of the block that holds them.
#[derive(Clone, Debug)]
struct Node {
    parent: Parent,
    tokens: Arc<BlockTokens>,
    children: Children,
    /// The state after these tokens and all before them, where it was kept.
    row: Option<RowId>,
}

/// What is known of a sequence's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The longest chain of full blocks.
    pub(crate) blocks: Vec<BlockId>,
    /// The last state on it: how many of its blocks it has seen, and the row.
    pub(crate) state: Option<(usize, RowId)>,
}

/// Every cached prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixTree {
    roots: BTreeMap<Arc<str>, Children>,
    nodes: BTreeMap<BlockId, Node>,
    /// Which node a row belongs to.
    rows: BTreeMap<RowId, BlockId>,
}

impl PrefixTree {
    /// How many blocks it holds.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What is known of these tokens.
    pub(crate) fn find(&self, salt: &str, tokens: &[TokenId]) -> Found {
        let mut found = Found::default();
        let mut children = self.roots.get(salt);
        let (full, _): (&[BlockTokens], _) = tokens.as_chunks();
        for tokens in full {
            let block = children.and_then(|children| children.get(tokens));
            #[cfg(planted)]
            let block = block.or_else(|| mistaken(children?, tokens));
            let Some((&block, node)) = block.and_then(|id| self.nodes.get_key_value(id)) else {
                break;
            };
            found.blocks.push(block);
            if let Some(row) = node.row {
                found.state = Some((found.blocks.len(), row));
            }
            children = Some(&node.children);
        }
        // Planted: ggml-org/llama.cpp#23970.
        #[cfg(planted)]
        if planted!(CheckpointsSurviveRequest) {
            self.restore_by_position(&mut found);
        }
        found
    }

    /// Takes any state of the same length, whatever the tokens were.
    #[cfg(planted)]
    fn restore_by_position(&self, found: &mut Found) {
        let depth_of = |block: BlockId| {
            let mut depth = 1;
            let mut node = self.nodes.get(&block);
            while let Some(Parent::Block(parent)) = node.map(|node| &node.parent) {
                depth += 1;
                node = self.nodes.get(parent);
            }
            depth
        };
        let len = found.blocks.len();
        let has_own = found.state.is_some_and(|state| state.0 == len);
        let other = self.rows.iter().find(|&(_, &block)| depth_of(block) == len);
        if let Some((&row, _)) = other.filter(|_| !has_own) {
            found.state = Some((len, row));
        }
    }

    /// The node with these tokens after `before`, which is a node; or that begins with them.
    pub(crate) fn child(
        &self,
        salt: &str,
        before: Option<BlockId>,
        tokens: &BlockTokens,
    ) -> Option<BlockId> {
        let children = match before {
            Some(before) => &self.nodes.get(&before)?.children,
            None => self.roots.get(salt)?,
        };
        children.get(tokens).copied()
    }

    /// Adds a node where [`child`](Self::child) found none.
    pub(crate) fn insert(
        &mut self,
        salt: &Arc<str>,
        before: Option<BlockId>,
        tokens: &BlockTokens,
        block: BlockId,
    ) {
        let tokens = Arc::new(*tokens);
        let (parent, children) = match before {
            Some(before) => {
                let node = self.nodes.get_mut(&before);
                let node = node.expect("a sequence holds the nodes that it goes on from");
                (Parent::Block(before), &mut node.children)
            }
            None => {
                let children = self.roots.entry(salt.clone()).or_default();
                (Parent::Salt(salt.clone()), children)
            }
        };
        let sibling = children.insert(tokens.clone(), block);
        let node = Node {
            parent,
            tokens,
            children: Children::new(),
            row: None,
        };
        let former = self.nodes.insert(block, node);
        assert!(sibling.is_none() && former.is_none(), "{block} is new");
    }

    /// Takes a node out, and all that come after it: without it they can't be found. Returns their blocks,
    /// and the rows of those that have one; the last ones first.
    pub(crate) fn remove(&mut self, block: BlockId) -> Vec<(BlockId, Option<RowId>)> {
        let mut removed = Vec::new();
        let mut left = vec![block];
        while let Some(block) = left.pop() {
            let Some(node) = self.nodes.remove(&block) else {
                continue;
            };
            left.extend(node.children.values());
            if let Some(row) = node.row {
                self.rows.remove(&row);
            }
            if removed.is_empty() {
                self.unhang(&node);
            }
            removed.push((block, node.row));
        }
        removed.reverse();
        removed
    }

    /// Takes a node's entry out of where it hangs. A salt without prefixes is forgotten.
    fn unhang(&mut self, node: &Node) {
        match &node.parent {
            Parent::Block(parent) => {
                if let Some(parent) = self.nodes.get_mut(parent) {
                    parent.children.remove(&node.tokens);
                }
            }
            Parent::Salt(salt) => {
                if let Some(children) = self.roots.get_mut(salt) {
                    children.remove(&node.tokens);
                    if children.is_empty() {
                        self.roots.remove(salt);
                    }
                }
            }
        }
    }

    /// Whether a node has no state yet.
    pub(crate) fn lacks_row(&self, block: BlockId) -> bool {
        self.nodes
            .get(&block)
            .is_some_and(|node| node.row.is_none())
    }

    /// Keeps a row as the state after a node that has none.
    pub(crate) fn set_row(&mut self, block: BlockId, row: RowId) {
        if let Some(node) = self.nodes.get_mut(&block) {
            node.row = Some(row);
            self.rows.insert(row, block);
        }
    }

    /// Forgets a state; the blocks stay.
    pub(crate) fn remove_row(&mut self, row: RowId) {
        let node = self.rows.remove(&row);
        if let Some(node) = node.and_then(|block| self.nodes.get_mut(&block)) {
            node.row = None;
        }
    }

    pub(crate) fn holds_block(&self, block: BlockId) -> bool {
        self.nodes.contains_key(&block)
    }

    pub(crate) fn holds_row(&self, row: RowId) -> bool {
        self.rows.contains_key(&row)
    }

    /// Whether the tree hangs together: every node is where its parent says, and none is lost. Slow; for
    /// tests.
    pub(crate) fn is_sound(&self) -> bool {
        let hangs = |(&block, node): (&BlockId, &Node)| {
            let siblings = match &node.parent {
                Parent::Block(parent) => self.nodes.get(parent).map(|parent| &parent.children),
                Parent::Salt(salt) => self.roots.get(salt),
            };
            let known = siblings.and_then(|siblings| siblings.get(&node.tokens));
            known == Some(&block)
                && node
                    .row
                    .is_none_or(|row| self.rows.get(&row) == Some(&block))
        };
        let nodes = self.nodes.values().map(|node| node.children.len());
        let roots = self.roots.values().map(Children::len);
        let num_rows = self.nodes.values().filter(|node| node.row.is_some());
        self.nodes.iter().all(hangs)
            && nodes.chain(roots).sum::<usize>() == self.nodes.len()
            && num_rows.count() == self.rows.len()
            && !self.roots.values().any(Children::is_empty)
    }
}

/// A node of other tokens that is taken for these.
#[cfg(planted)]
fn mistaken<'a>(children: &'a Children, tokens: &BlockTokens) -> Option<&'a BlockId> {
    let weak_hash = |tokens: &BlockTokens| {
        let hash = tokens.iter().fold(0u32, |hash, token| {
            (hash ^ token.0).wrapping_mul(0x9e37_79b1)
        });
        hash >> 20
    };
    let is_mistaken = |node: &BlockTokens| {
        // Planted: openvinotoolkit/openvino.genai#3722.
        (planted!(HashCollisionUnchecked) && weak_hash(node) == weak_hash(tokens))
            // Planted: waybarrios/vllm-mlx#380.
            || (planted!(TrimOffsetKeepsForeignTail) && node[..32] == tokens[..32])
    };
    let mut mistaken = children.iter().filter(|(node, _)| is_mistaken(node));
    mistaken.next().map(|(_, block)| block)
}

#[cfg(test)]
mod tests;
