//! From logits to draws: what a sequence's plan says about sampling, handed to the sampler of `numerics`.
//! A draw must depend on its own row of logits, its mask and its sequence's plan, and on nothing else.

use lockstep_numerics::sampler::{self, DrawError, Sampler, SamplerParams};
use lockstep_step::{
    Bitmask, Digest, Draw, Logprobs, PlanError, PlanRule, Pos, SamplingParams, SeqError, SeqPlan,
    TokenId,
};

/// Draws the tokens of a sequence's scored positions. `tokens` is its query, all ids known; `logits` is
/// (scored, vocab_size); `masks` has an entry per scored position.
pub(crate) fn draw_seq(
    sampler: &mut Sampler,
    seq: &SeqPlan,
    tokens: &[TokenId],
    logits: &[f32],
    vocab_size: usize,
    masks: &[Option<&Bitmask>],
) -> Result<Vec<Draw>, SeqError> {
    let params = params(&seq.sampling);
    let bias: Vec<(u32, f32)> = seq.sampling.bias.iter().map(|&(t, b)| (t.0, b)).collect();
    let mut counts: Vec<sampler::TokenCount> = seq
        .counts
        .iter()
        .map(|count| sampler::TokenCount {
            token: count.token.0,
            in_prompt: count.in_prompt,
            output: count.output,
        })
        .collect();
    let mut counted = None;
    let mut draws = Vec::with_capacity(seq.scored.len());
    for (scored, row) in seq.scored.iter().zip(logits.chunks_exact(vocab_size)) {
        let query_idx = scored.query_idx as usize;
        if seq.sampling.has_penalties() {
            // The counts end at the first scored position; each later one sees the drafts up to it.
            for token in counted.map_or(&[][..], |last: usize| &tokens[last + 1..=query_idx]) {
                count(&mut counts, token.0);
            }
            counted = Some(query_idx);
        }
        let pos = Pos(seq.start.0 + scored.query_idx + 1);
        let mask = masks[draws.len()].map(Bitmask::words);
        let top = seq.sampling.top_logprobs;
        let drawn = sampler
            .draw(row, &params, &counts, &bias, mask, u64::from(pos.0), top)
            .map_err(|error| seq_error(error, seq, pos))?;
        draws.push(Draw {
            token: TokenId(drawn.token),
            digest: Digest(lockstep_numerics::digest(row)),
            logprobs: drawn.logprob.map(|logprob| Logprobs {
                drawn: logprob,
                top: drawn.top.iter().map(|&(t, l)| (TokenId(t), l)).collect(),
            }),
        });
    }
    Ok(draws)
}

fn params(sampling: &SamplingParams) -> SamplerParams {
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

/// Counts one more occurrence in the output; the list stays in order of token id.
fn count(counts: &mut Vec<sampler::TokenCount>, token: u32) {
    match counts.binary_search_by_key(&token, |count| count.token) {
        Ok(idx) => counts[idx].output += 1,
        Err(idx) => counts.insert(
            idx,
            sampler::TokenCount {
                token,
                in_prompt: false,
                output: 1,
            },
        ),
    }
}

fn seq_error(error: DrawError, seq: &SeqPlan, pos: Pos) -> SeqError {
    match error {
        DrawError::NothingAllowed => SeqError::NothingAllowed { pos },
        DrawError::NotFinite { .. } => SeqError::NotFinite {
            op: "sample".to_string(),
            layer: None,
            pos,
        },
        other => SeqError::Refused(PlanError {
            rule: PlanRule::TokenRange,
            seq: seq.seq,
            detail: other.to_string(),
        }),
    }
}
