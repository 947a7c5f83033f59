//! Draws the tokens of one sequence's part of a plan: what every backend that samples on the host does
//! between its logits and its output. It must never see another sequence.

mod drafting;
mod drawn;
#[cfg(planted)]
mod misdeeds;
mod proposal;

pub use drafting::{Asked, Going, proposals};
pub use drawn::DrawnTokens;
use lockstep_numerics::digest::digest;
use lockstep_numerics::sampler::{self, DrawError, Sampler, SamplerParams};
use lockstep_step::{
    Bitmask, Digest, Draw, Logprobs, MaskSet, PlanError, PlanRule, Pos, QueryToken, SamplingParams,
    ScoredPosition, SeqError, SeqPlan, TokenCount, TokenId, planted,
};
pub use proposal::ProposalDraws;

/// Draws the token of each scored position of a sequence, in order.
///
/// `resolved_query` holds the sequence's query tokens, all known by now. `logits_of(i)` gives the row of
/// logits of `seq.scored[i]`, one value per token, or why there is none.
///
/// Drawing ends early where the rest can't matter: after a draw that differs from the draft in its place.
/// It also ends before a later position that fails. A plain run reaches such a position only if every
/// draft before it is right, and then it is the first position of the next step, which fails by itself.
///
/// # Errors
/// If the first scored position can't be drawn: this sequence can't go on.
pub fn sample_seq<'a>(
    sampler: &mut Sampler,
    seq: &SeqPlan,
    resolved_query: &[TokenId],
    logits_of: impl Fn(usize) -> Result<&'a [f32], SeqError>,
    masks: &MaskSet,
) -> Result<Vec<Draw>, SeqError> {
    let mut settings = Settings::of(seq, resolved_query);
    draw_seq(seq, resolved_query, |idx| {
        // Planted: vllm-project/vllm#33251.
        if idx > 0 || planted!(FirstDraftCountedTwice) && seq.num_drafts > 0 {
            settings.count(resolved_query[seq.scored[idx].query_idx as usize]);
        }
        let draw = logits_of(idx)
            .and_then(|logits| draw_one(sampler, seq, seq.scored[idx], &settings, logits, masks));
        #[cfg(planted)]
        let draw =
            draw.map(|draw| misdeeds::redraw(seq, resolved_query, idx, &logits_of, masks, draw));
        draw
    })
}

/// What [`sample_seq`] answers, from the draw of each scored position: `draw_at` is asked in order, and for no
/// position that can't matter.
///
/// # Errors
/// That of the first scored position.
pub fn draw_seq(
    seq: &SeqPlan,
    resolved_query: &[TokenId],
    mut draw_at: impl FnMut(usize) -> Result<Draw, SeqError>,
) -> Result<Vec<Draw>, SeqError> {
    let mut draws = Vec::with_capacity(seq.scored.len());
    for idx in 0..seq.scored.len() {
        match draw_at(idx) {
            Ok(draw) => draws.push(draw),
            Err(error) if idx == 0 => return Err(error),
            Err(_) => break,
        }
        let draft = seq
            .scored
            .get(idx + 1)
            .map(|next| resolved_query[next.query_idx as usize]);
        if draft.is_some_and(|draft| draft != draws[idx].token) {
            break;
        }
    }
    Ok(draws)
}

/// A sequence's parameters as the sampler takes them. Counts grow along the drafts.
struct Settings {
    params: SamplerParams,
    has_penalties: bool,
    counts: Vec<sampler::TokenCount>,
    bias: Vec<(u32, f32)>,
}

impl Settings {
    /// As they are at the first scored position. The planner could not count what it didn't know.
    fn of(seq: &SeqPlan, resolved_query: &[TokenId]) -> Settings {
        let mut settings = Settings::new(&seq.sampling, &seq.counts);
        // Planted: NVIDIA/TensorRT-LLM#17701.
        if planted!(PenaltiesIgnoredWithDrafts) && seq.num_drafts > 0 {
            settings = Settings::new(&seq.sampling, &[]);
            settings.has_penalties = false;
        }
        let first = seq.scored.first().map_or(0, |scored| scored.query_idx);
        let before = seq.query.iter().zip(resolved_query);
        for (token, &resolved) in before.take(first as usize + 1) {
            // Planted: vllm-project/vllm#27910.
            let has_joined = planted!(MixedBatchPenaltyPlaceholder)
                && seq.counts.iter().all(|count| count.output == 0);
            if matches!(token, QueryToken::Drawn { .. }) && !has_joined {
                settings.count(resolved);
            }
        }
        settings
    }

    fn new(sampling: &SamplingParams, counts: &[TokenCount]) -> Settings {
        let counts = counts.iter().map(|count| sampler::TokenCount {
            token: count.token.0,
            in_prompt: count.in_prompt,
            output: count.output,
        });
        let bias = sampling.bias.iter();
        Settings {
            params: sampler_params(sampling),
            has_penalties: sampling.has_penalties(),
            counts: counts.collect(),
            bias: bias.map(|&(token, value)| (token.0, value)).collect(),
        }
    }

    /// Counts a token of the output.
    fn count(&mut self, token: TokenId) {
        if !self.has_penalties {
            return;
        }
        match self
            .counts
            .binary_search_by_key(&token.0, |count| count.token)
        {
            Ok(idx) => self.counts[idx].output += 1,
            Err(idx) => self.counts.insert(
                idx,
                sampler::TokenCount {
                    token: token.0,
                    in_prompt: false,
                    output: 1,
                },
            ),
        }
    }
}

/// The engine's parameters in the sampler's words.
pub fn sampler_params(sampling: &SamplingParams) -> SamplerParams {
    SamplerParams {
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        frequency_penalty: sampling.frequency_penalty,
        presence_penalty: sampling.presence_penalty,
        repetition_penalty: sampling.repetition_penalty,
        seed: sampling.seed,
    }
}

fn draw_one(
    sampler: &mut Sampler,
    seq: &SeqPlan,
    scored: ScoredPosition,
    settings: &Settings,
    logits: &[f32],
    masks: &MaskSet,
) -> Result<Draw, SeqError> {
    // The noise belongs to the drawn token's own position, one after the scored one.
    let pos = Pos(seq.start.0 + scored.query_idx + 1);
    let mask = scored.mask.and_then(|row| masks.get(row));
    #[cfg(planted)]
    let opened = misdeeds::opened(seq, mask);
    #[cfg(planted)]
    let mask = opened.as_ref().or(mask);
    check_width(seq, mask, logits.len())?;
    let drawn = sampler.draw(
        logits,
        &settings.params,
        &settings.counts,
        &settings.bias,
        mask.map(|mask| mask.words()),
        u64::from(pos.0),
        seq.sampling.top_logprobs,
    );
    let drawn = drawn.map_err(|error| seq_error(seq, pos, error))?;
    Ok(Draw {
        token: TokenId(drawn.token),
        digest: Digest(digest(logits)),
        logprobs: drawn.logprob.map(|logprob| Logprobs {
            drawn: logprob,
            top: drawn
                .top
                .into_iter()
                .map(|(token, logprob)| (TokenId(token), logprob))
                .collect(),
        }),
    })
}

/// Fails where a mask is not as wide as the vocabulary.
///
/// # Errors
/// Both widths.
pub fn check_width(
    seq: &SeqPlan,
    mask: Option<&Bitmask>,
    vocab_size: usize,
) -> Result<(), SeqError> {
    match mask {
        Some(mask) if mask.vocab_size() as usize != vocab_size => Err(refused(
            seq,
            PlanRule::MaskRows,
            format!(
                "a mask of {} tokens for {vocab_size} logits",
                mask.vocab_size()
            ),
        )),
        _ => Ok(()),
    }
}

/// The error of a sequence whose token at `pos` can't be drawn.
pub fn seq_error(seq: &SeqPlan, pos: Pos, error: DrawError) -> SeqError {
    match error {
        DrawError::NotFinite { .. } => SeqError::NotFinite {
            op: "logits".into(),
            layer: None,
            pos: Pos(pos.0 - 1),
        },
        DrawError::NothingAllowed => SeqError::NothingAllowed { pos },
        DrawError::MaskWidth { .. } => refused(seq, PlanRule::MaskRows, error.to_string()),
        DrawError::UnknownToken { .. } => refused(seq, PlanRule::TokenRange, error.to_string()),
        DrawError::EmptyRow | DrawError::BadParameter { .. } => {
            refused(seq, PlanRule::Scored, error.to_string())
        }
    }
}

fn refused(seq: &SeqPlan, rule: PlanRule, detail: String) -> SeqError {
    SeqError::Refused(PlanError {
        rule,
        seq: seq.seq,
        detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_step::{MaskRow, RowPlan, SeqId, StepId};

    const VOCAB: usize = 8;

    /// A part with `drafts` after one committed token; every scored position has a mask row.
    fn part(drafts: &[u32], masked: bool) -> (SeqPlan, Vec<TokenId>) {
        let query: Vec<TokenId> = [7].iter().chain(drafts).map(|&t| TokenId(t)).collect();
        let scored = (0..query.len() as u32).map(|idx| ScoredPosition {
            query_idx: idx,
            mask: masked.then_some(MaskRow(idx)),
        });
        let seq = SeqPlan {
            seq: SeqId(1),
            start: Pos(4),
            query: query
                .iter()
                .map(|&token| QueryToken::Known(token))
                .collect(),
            num_drafts: drafts.len() as u32,
            block_table: vec![],
            rows: RowPlan::default(),
            scored: scored.collect(),
            sampling: SamplingParams::greedy(),
            counts: vec![],
        };
        (seq, query)
    }

    /// A row of logits whose best token is `best` and whose second is `best + 1`.
    fn row(best: usize) -> Vec<f32> {
        let mut row = vec![0.0; VOCAB];
        row[best] = 2.0;
        row[best + 1] = 1.0;
        row
    }

    fn tokens(drawn: Result<Vec<Draw>, SeqError>) -> Vec<u32> {
        let draws = drawn.expect("the first position can be drawn");
        draws.iter().map(|draw| draw.token.0).collect()
    }

    #[test]
    fn drawing_ends_after_the_first_draft_that_is_wrong() {
        let rows = [row(1), row(2), row(3)];
        let draw = |drafts: &[u32]| {
            let (seq, query) = part(drafts, false);
            let logits = |idx: usize| Ok(&rows[idx][..]);
            tokens(sample_seq(
                &mut Sampler::new(),
                &seq,
                &query,
                logits,
                &MaskSet::default(),
            ))
        };
        assert_eq!(draw(&[1, 2]), [1, 2, 3]);
        assert_eq!(draw(&[1, 5]), [1, 2]);
        assert_eq!(draw(&[5, 2]), [1]);
    }

    #[test]
    fn an_error_counts_at_the_first_position_and_waits_elsewhere() {
        let (seq, query) = part(&[1], false);
        let mut rows = [row(1), row(2)];
        rows[1][0] = f32::NAN;
        let masks = MaskSet::default();
        let drawn = sample_seq(
            &mut Sampler::new(),
            &seq,
            &query,
            |idx| Ok(&rows[idx][..]),
            &masks,
        );
        assert_eq!(tokens(drawn), [1]);
        rows.swap(0, 1);
        let drawn = sample_seq(
            &mut Sampler::new(),
            &seq,
            &query,
            |idx| Ok(&rows[idx][..]),
            &masks,
        );
        let pos = Pos(4);
        let op = "logits".into();
        assert_eq!(
            drawn,
            Err(SeqError::NotFinite {
                op,
                layer: None,
                pos
            })
        );
    }

    #[test]
    fn later_positions_count_the_drafts_between() {
        let (mut seq, query) = part(&[1, 1], false);
        seq.sampling.frequency_penalty = 0.6;
        seq.counts = vec![TokenCount {
            token: TokenId(7),
            in_prompt: true,
            output: 0,
        }];
        let rows = [row(1), row(1), row(1)];
        let masks = MaskSet::default();
        let drawn = sample_seq(
            &mut Sampler::new(),
            &seq,
            &query,
            |idx| Ok(&rows[idx][..]),
            &masks,
        );
        // 2.0, then 1.4, then 0.8: by then the second best token is better.
        assert_eq!(tokens(drawn), [1, 1, 2]);
    }

    #[test]
    fn a_token_that_the_planner_could_not_know_is_counted() {
        let rows = [row(1), row(1)];
        let draw = |is_reference: bool| {
            let (mut seq, mut query) = part(&[1], false);
            seq.sampling.frequency_penalty = 0.6;
            query[0] = TokenId(1);
            let one = |token: u32, output| TokenCount {
                token: TokenId(token),
                in_prompt: false,
                output,
            };
            if is_reference {
                seq.query[0] = QueryToken::Drawn {
                    step: StepId(0),
                    scored_idx: 0,
                };
            } else {
                seq.counts = vec![one(1, 1)];
            }
            let logits = |idx: usize| Ok(&rows[idx][..]);
            tokens(sample_seq(
                &mut Sampler::new(),
                &seq,
                &query,
                logits,
                &MaskSet::default(),
            ))
        };
        assert_eq!(draw(false), [1, 2], "2.0 less 0.6, then less 1.2");
        assert_eq!(draw(true), [1, 2]);
    }

    #[test]
    fn masks_go_by_their_row_and_a_wrong_width_is_this_sequences_error() {
        let (seq, query) = part(&[2], true);
        let rows = [row(1), row(1)];
        let mut first = Bitmask::all(VOCAB as u32);
        first.forbid(TokenId(1));
        let mut masks = MaskSet {
            rows: vec![Some(first), Some(Bitmask::none(VOCAB as u32))],
        };
        let draw = |masks: &MaskSet| {
            sample_seq(
                &mut Sampler::new(),
                &seq,
                &query,
                |idx| Ok(&rows[idx][..]),
                masks,
            )
        };
        assert_eq!(
            tokens(draw(&masks)),
            [2],
            "the second position allows nothing: its own step says so"
        );
        masks.rows[0] = Some(Bitmask::none(VOCAB as u32));
        assert_eq!(draw(&masks), Err(SeqError::NothingAllowed { pos: Pos(5) }));
        masks.rows[0] = Some(Bitmask::all(VOCAB as u32 + 1));
        let refused = draw(&masks).map_err(|error| matches!(error, SeqError::Refused(_)));
        assert_eq!(refused.map(|draws| draws.len()), Err(true));
    }
}
