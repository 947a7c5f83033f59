//! What the model says word for word, where a test needs a certain output. A script only raises logits:
//! masks, penalties and sampling still apply.

use lockstep_step::{BLOCK_LEN, BlockId, Pos, SeqId, SeqPlan, TokenId};
use std::collections::BTreeMap;

/// Added to the logit of a script's next token.
const EMPHASIS: f32 = 1000.0;

/// An output for some prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Tokens that must stand in the prompt, one after another; empty fits every prompt.
    pub when: Vec<TokenId>,
    /// What to say after the prompt, its end token included. The model is itself again after that.
    pub output: Vec<TokenId>,
}

/// The scripts, and where each sequence is. Empty scripts cost nothing and keep nothing.
pub(crate) struct Scripts {
    scripts: Vec<Script>,
    /// The tokens in the slots, as the model has their hashes: a sequence may read what another wrote.
    slots: BTreeMap<BlockId, [TokenId; BLOCK_LEN as usize]>,
    /// The first position of a sequence that was ever scored, and the script of the tokens up to there: the
    /// prompt. A preempted sequence keeps it.
    chosen: BTreeMap<SeqId, (u32, Option<usize>)>,
}

impl Scripts {
    pub(crate) fn new(scripts: Vec<Script>) -> Scripts {
        Scripts {
            scripts,
            slots: BTreeMap::new(),
            chosen: BTreeMap::new(),
        }
    }

    /// Takes note of a query.
    pub(crate) fn read(&mut self, seq: &SeqPlan, query: &[TokenId]) {
        if self.scripts.is_empty() {
            return;
        }
        for (pos, &token) in (seq.start.0..).zip(query) {
            let (block, offset) = seq.slot(Pos(pos));
            let tokens = self.slots.entry(block);
            let tokens = tokens.or_insert([TokenId(0); BLOCK_LEN as usize]);
            tokens[offset as usize] = token;
        }
        let Some(first) = seq
            .scored
            .first()
            .filter(|_| !self.chosen.contains_key(&seq.seq))
        else {
            return;
        };
        let pos = seq.start.0 + first.query_idx;
        let token_at = |pos: u32| {
            let (block, offset) = seq.slot(Pos(pos));
            let tokens = self.slots.get(&block);
            tokens.map_or(TokenId(0), |tokens| tokens[offset as usize])
        };
        let prompt: Vec<TokenId> = (0..=pos).map(token_at).collect();
        let fits = |script: &Script| {
            script.when.is_empty()
                || prompt
                    .windows(script.when.len())
                    .any(|run| run == script.when)
        };
        let script = self.scripts.iter().position(fits);
        self.chosen.insert(seq.seq, (pos, script));
    }

    /// Raises the logit of the script's token after this query token.
    pub(crate) fn apply(&self, seq: &SeqPlan, query_idx: u32, logits: &mut [f32]) {
        let Some(&(first, Some(script))) = self.chosen.get(&seq.seq) else {
            return;
        };
        let idx = (seq.start.0 + query_idx).saturating_sub(first) as usize;
        let token = self.scripts[script].output.get(idx);
        if let Some(logit) = token.and_then(|token| logits.get_mut(token.0 as usize)) {
            *logit += EMPHASIS;
        }
    }
}
