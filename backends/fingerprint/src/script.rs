//! What the model says word for word, where a test needs a certain output. A script only raises logits:
//! masks, penalties and sampling still apply.

use lockstep_step::{SeqId, SeqPlan, TokenId};
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
    histories: BTreeMap<SeqId, History>,
}

/// What has been seen of a sequence.
#[derive(Default)]
struct History {
    tokens: Vec<TokenId>,
    /// The first position that was ever scored, and the script of the tokens up to there: the prompt. A
    /// preempted sequence keeps it.
    chosen: Option<(u32, Option<usize>)>,
}

impl Scripts {
    pub(crate) fn new(scripts: Vec<Script>) -> Scripts {
        Scripts {
            scripts,
            histories: BTreeMap::new(),
        }
    }

    /// Takes note of a query.
    pub(crate) fn read(&mut self, seq: &SeqPlan, query: &[TokenId]) {
        if self.scripts.is_empty() {
            return;
        }
        let history = self.histories.entry(seq.seq).or_default();
        history.tokens.truncate(seq.start.0 as usize);
        history.tokens.extend_from_slice(query);
        let Some(first) = seq.scored.first().filter(|_| history.chosen.is_none()) else {
            return;
        };
        let pos = seq.start.0 + first.query_idx;
        let prompt = &history.tokens[..=pos as usize];
        let fits = |script: &Script| {
            script.when.is_empty()
                || prompt
                    .windows(script.when.len())
                    .any(|run| run == script.when)
        };
        history.chosen = Some((pos, self.scripts.iter().position(fits)));
    }

    /// Raises the logit of the script's token after this query token.
    pub(crate) fn apply(&self, seq: &SeqPlan, query_idx: u32, logits: &mut [f32]) {
        let history = self.histories.get(&seq.seq);
        let Some((first, Some(script))) = history.and_then(|history| history.chosen) else {
            return;
        };
        let idx = (seq.start.0 + query_idx).saturating_sub(first) as usize;
        let token = self.scripts[script].output.get(idx);
        if let Some(logit) = token.and_then(|token| logits.get_mut(token.0 as usize)) {
            *logit += EMPHASIS;
        }
    }
}
