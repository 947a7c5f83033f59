//! A sequence that drafts, between its question and its proposal: what a model that drafts computes next for it. It
//! must never know what computes.

use crate::ProposalDraws;
use lockstep_step::{
    ModelDrafter, Pos, Proposal, ProposalPlan, QueryToken, RowId, RowPlan, RowWrite,
    SamplingParams, ScoredPosition, SeqPlan, SeqProposalPlan, TokenId,
};

/// One sequence's question, in progress.
pub struct Asked<'a> {
    // Its place in the plan.
    idx: usize,
    ask: &'a SeqProposalPlan,
    /// What was drawn so far.
    pub draws: ProposalDraws,
}

impl<'a> Asked<'a> {
    /// The questions of a plan to one drafter; nothing is drawn yet.
    pub fn all_of(plan: &'a ProposalPlan, drafter: ModelDrafter) -> Vec<Asked<'a>> {
        let seqs = plan.seqs.iter().enumerate();
        let seqs = seqs.filter(|(_, ask)| ask.drafter == drafter);
        seqs.map(|(idx, ask)| Asked {
            idx,
            ask,
            draws: ProposalDraws::new(ask),
        })
        .collect()
    }

    /// What is asked.
    pub fn ask(&self) -> &'a SeqProposalPlan {
        self.ask
    }

    /// A part of a plan that computes the `len` tokens from `start` on, and scores the last of them if it `draws`.
    pub fn part(&self, start: Pos, len: usize, draws: bool) -> SeqPlan {
        let scored = ScoredPosition {
            query_idx: len as u32 - 1,
            mask: None,
        };
        SeqPlan {
            seq: self.ask.seq,
            start,
            // Tokens are handed to the layout by themselves.
            query: vec![QueryToken::Known(TokenId(0)); len],
            num_drafts: 0,
            block_table: self.ask.block_table.clone(),
            rows: RowPlan::default(),
            scored: draws.then_some(scored).into_iter().collect(),
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }
    }

    /// The token of an entry, where one is computed per round: of the query, then of what was drafted.
    pub fn token(&self, round: usize) -> TokenId {
        let query = &self.ask.query;
        match round.checked_sub(query.len()) {
            None => query[round],
            Some(idx) => self.draws.tokens()[idx],
        }
    }

    /// Whether the entry of a round drafts: from the last token of the query on.
    pub fn drafts(&self, round: usize) -> bool {
        round + 1 >= self.ask.query.len()
    }
}

/// The answers to a plan, in its order: who asked a drafter that isn't there gets nothing.
pub fn proposals(plan: &ProposalPlan, done: Vec<Asked<'_>>) -> Vec<Proposal> {
    let nothing = plan.seqs.iter().map(|ask| Proposal {
        seq: ask.seq,
        tokens: Vec::new(),
    });
    let mut proposals: Vec<Proposal> = nothing.collect();
    for asked in done {
        proposals[asked.idx].tokens = asked.draws.into_tokens();
    }
    proposals
}

/// A sequence for which a model of its own drafts: what that computes next.
pub struct Going<'a> {
    /// The question.
    pub asked: Asked<'a>,
    /// The tokens to compute.
    pub tokens: Vec<TokenId>,
    start: Pos,
    read: Option<RowId>,
    // One to write, and the one to write after that.
    own_rows: Option<[RowId; 2]>,
}

impl<'a> Going<'a> {
    /// At the beginning. `own_rows` are no plan's, where the model has recurrent state.
    pub fn new(asked: Asked<'a>, own_rows: Option<[RowId; 2]>) -> Going<'a> {
        Going {
            tokens: asked.ask.query.clone(),
            start: asked.ask.start,
            read: asked.ask.row,
            asked,
            own_rows,
        }
    }

    /// Its part of the next step, the last token of which is scored.
    pub fn part(&self) -> SeqPlan {
        let mut part = self.asked.part(self.start, self.tokens.len(), true);
        if let Some([row, _]) = self.own_rows {
            let query_idx = self.tokens.len() as u32 - 1;
            part.rows = RowPlan {
                read: self.read,
                writes: vec![RowWrite { query_idx, row }],
            };
        }
        part
    }

    /// Moves on behind what was drawn last.
    pub fn go_on(&mut self) {
        self.start.0 += self.tokens.len() as u32;
        let last = self.asked.draws.tokens().last();
        self.tokens = last.copied().into_iter().collect();
        self.own_rows = self.own_rows.map(|[written, other]| {
            self.read = Some(written);
            [other, written]
        });
    }
}
