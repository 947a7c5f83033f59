//! Draws proposals, as the model would draw what they stand for. It must never fail: whatever is odd ends a
//! proposal early.

use crate::Settings;
use lockstep_numerics::sampler::{Sampler, SamplerParams, TokenCount};
use lockstep_step::{Pos, SeqProposalPlan, TokenId};

/// The draws of one sequence's proposal. Noise is that of the position that is drawn, counts grow along the
/// tokens that were proposed, and there are no masks: so a drafter whose logits are the model's own draws
/// what an unconstrained sequence will.
pub struct ProposalDraws {
    settings: Settings,
    num_max: usize,
    // Of the next token.
    pos: Pos,
    tokens: Vec<TokenId>,
    is_over: bool,
}

impl ProposalDraws {
    /// For one sequence's question; nothing is drawn yet.
    pub fn new(ask: &SeqProposalPlan) -> ProposalDraws {
        ProposalDraws {
            settings: Settings::new(&ask.sampling, &ask.counts),
            num_max: ask.num_max as usize,
            pos: Pos(ask.start.0 + ask.query.len() as u32),
            tokens: Vec::new(),
            is_over: false,
        }
    }

    /// Draws the next token from its logits. What can't be drawn, such as a row that is not finite, ends the
    /// proposal.
    pub fn draw(&mut self, sampler: &mut Sampler, logits: &[f32]) {
        if let Some(token) = self.next(sampler, logits) {
            self.push(token);
        }
    }

    /// The token that [`ProposalDraws::draw`] would take.
    pub fn next(&mut self, sampler: &mut Sampler, logits: &[f32]) -> Option<TokenId> {
        let (params, counts, bias, pos) = self.asked();
        let drawn = sampler.draw(logits, params, counts, bias, None, pos, None);
        self.is_over |= drawn.is_err();
        drawn.ok().map(|drawn| TokenId(drawn.token))
    }

    /// How the next token is drawn, for whoever draws it elsewhere: parameters, counts, biases, and its position.
    pub fn asked(&self) -> (&SamplerParams, &[TokenCount], &[(u32, f32)], u64) {
        let Settings {
            params,
            counts,
            bias,
            ..
        } = &self.settings;
        (params, counts, bias, u64::from(self.pos.0))
    }

    /// Nothing more can be drawn.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Takes a token as if it had been drawn.
    pub fn push(&mut self, token: TokenId) {
        self.settings.count(token);
        self.tokens.push(token);
        self.pos.0 += 1;
        self.is_over |= self.tokens.len() >= self.num_max;
    }

    /// Whether nothing more is to be drawn.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What was drawn so far.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// What was drawn.
    pub fn into_tokens(self) -> Vec<TokenId> {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_step::{ModelDrafter, SamplingParams, SeqId};

    fn ask(sampling: SamplingParams) -> SeqProposalPlan {
        SeqProposalPlan {
            seq: SeqId(1),
            drafter: ModelDrafter::Mtp,
            start: Pos(4),
            query: vec![TokenId(7), TokenId(1)],
            num_max: 3,
            block_table: vec![],
            row: None,
            sampling,
            counts: vec![],
        }
    }

    fn proposed(ask: &SeqProposalPlan, rows: &[Vec<f32>]) -> Vec<u32> {
        let mut draws = ProposalDraws::new(ask);
        for row in rows {
            if !draws.is_over() {
                draws.draw(&mut Sampler::new(), row);
            }
        }
        draws.into_tokens().iter().map(|token| token.0).collect()
    }

    #[test]
    fn it_ends_where_it_is_full_or_something_is_odd() {
        let ask = ask(SamplingParams::greedy());
        let row = vec![0.0, 1.0, 0.5];
        assert_eq!(proposed(&ask, &vec![row.clone(); 5]), [1, 1, 1]);
        let nan = vec![0.0, f32::NAN, 0.5];
        assert_eq!(proposed(&ask, &[row.clone(), nan, row]), [1]);
        assert_eq!(proposed(&ask, &[Vec::new()]), [0u32; 0]);
    }

    #[test]
    fn counts_grow_along_the_proposal() {
        let mut sampling = SamplingParams::greedy();
        sampling.frequency_penalty = 0.4;
        let row = vec![0.0, 1.0, 0.5];
        // 1.0, then 0.6, then 0.2: by then the second best token is better.
        assert_eq!(proposed(&ask(sampling), &vec![row; 3]), [1, 1, 2]);
    }

    #[test]
    fn noise_is_that_of_the_position() {
        let mut sampling = SamplingParams::greedy();
        sampling.temperature = 1.0;
        let rows = vec![vec![0.0; 64]; 3];
        let mut moved = ask(sampling.clone());
        let here = proposed(&moved, &rows);
        assert_ne!(here[0], here[1], "two positions, two draws");
        moved.start.0 += 1;
        let later = proposed(&moved, &rows);
        assert_eq!(here[1..], later[..2]);
    }
}
