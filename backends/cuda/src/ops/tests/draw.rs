//! The sampler on the device against the one of the host: tokens, refusals, log-probabilities.

use super::{Case, agree};
use crate::ops::draw::{
    DRAWN, DrawParams, DrawTokens, NOT_FINITE, NOTHING_ALLOWED, TokenBias, TokenCount,
    UNKNOWN_TOKEN,
};
use crate::ops::logprobs::{Logprobs, TOP_LOGPROBS_MAX};
use lockstep_numerics::sampler::{self, Draw, DrawError, Sampler, SamplerParams};
use lockstep_step::NO_ID;

/// One position to draw at, and what it is drawn from.
#[derive(Clone, Debug)]
struct Position {
    params: SamplerParams,
    position: u64,
    counts: Vec<sampler::TokenCount>,
    /// Tokens that count as output besides.
    extras: Vec<u32>,
    bias: Vec<(u32, f32)>,
    mask: Option<Vec<u32>>,
    top_logprobs: Option<u32>,
}

/// A row of logits: spread out, crowded, or with many equals.
fn logits(case: &mut Case, vocab: usize) -> Vec<f32> {
    let kind = case.rng.below(5);
    (0..vocab)
        .map(|_| match kind {
            0 => case.rng.float() * 40.0,
            1 => case.rng.float() * 0.5,
            2 => case.rng.pick(&[-1.0, -0.0, 0.0, 1.0, 2.5]),
            3 => case.rng.float() * case.rng.float() * case.rng.float() * 15.0,
            _ => case.rng.pick(&[0.0, -0.0]),
        })
        .collect()
}

fn position(case: &mut Case, vocab: usize) -> Position {
    let rng = &mut case.rng;
    let params = SamplerParams {
        temperature: rng.pick(&[0.0, 0.0, 0.3, 1.0, 1.0, 2.5, 1e-6]),
        top_k: rng.pick(&[0, 0, 1, 5, 40, 1000, u32::MAX]),
        top_p: rng.pick(&[1.0, 1.0, 0.95, 0.5, 0.01, 0.0]),
        min_p: rng.pick(&[0.0, 0.0, 0.05, 0.5, 1.0]),
        frequency_penalty: rng.pick(&[0.0, 0.0, 0.7, -1.5]),
        presence_penalty: rng.pick(&[0.0, 0.0, 1.1]),
        repetition_penalty: rng.pick(&[1.0, 1.0, 1.3, 0.5]),
        seed: rng.next(),
    };
    let mut ids: Vec<u32> = (0..vocab as u32).collect();
    rng.shuffle(&mut ids);
    ids.truncate(rng.below(30));
    ids.sort_unstable();
    let counts = ids.iter().map(|&token| sampler::TokenCount {
        token,
        in_prompt: rng.flip(),
        output: rng.pick(&[0, 1, 2, 7]),
    });
    let counts: Vec<_> = counts.collect();
    let token = |case: &mut Case| case.rng.below(vocab) as u32;
    let mut extras: Vec<u32> = (0..case.rng.below(6)).map(|_| token(case)).collect();
    extras.extend(
        counts
            .first()
            .filter(|_| case.rng.flip())
            .map(|count| count.token),
    );
    extras.extend(extras.first().copied().filter(|_| case.rng.flip()));
    let num_bias = case.rng.pick(&[0, 0, 3, 40]);
    let mut bias: Vec<(u32, f32)> = (0..num_bias)
        .map(|_| (token(case), case.rng.float() * 20.0))
        .collect();
    bias.extend(bias.first().copied().filter(|_| case.rng.flip()));
    let mask = match case.rng.below(4) {
        0 => Some(
            (0..vocab.div_ceil(32))
                .map(|_| case.rng.next() as u32)
                .collect(),
        ),
        1 if case.rng.flip() => {
            // One token, or what lies behind the vocabulary alone.
            let mut words = vec![0; vocab.div_ceil(32)];
            let allowed = case.rng.between(0, words.len() * 32 - 1);
            words[allowed / 32] = 1 << (allowed % 32);
            Some(words)
        }
        _ => None,
    };
    Position {
        params,
        position: case.rng.next() >> case.rng.below(60),
        counts,
        extras,
        bias,
        mask,
        top_logprobs: case.rng.pick(&[None, Some(0), Some(1), Some(5), Some(20)]),
    }
}

/// What the host draws there.
fn expect(row: &[f32], at: &Position) -> Result<Draw, DrawError> {
    let mut counts = at.counts.clone();
    for &token in &at.extras {
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
    Sampler::new().draw(
        row,
        &at.params,
        &counts,
        &at.bias,
        at.mask.as_deref(),
        at.position,
        at.top_logprobs,
    )
}

/// All positions in the lists that kernels read.
#[derive(Default)]
struct Lists {
    params: Vec<DrawParams>,
    counts: Vec<TokenCount>,
    biases: Vec<TokenBias>,
    extras: Vec<u32>,
    tokens: Vec<u32>,
    masks: Vec<u32>,
}

impl Lists {
    fn add(&mut self, at: &Position, row: u32, vocab: usize) {
        let mut params = DrawParams::new(&at.params, row, at.position);
        params.top_logprobs = at.top_logprobs.unwrap_or(NO_ID);
        (params.counts_at, params.num_counts) = (self.counts.len() as u32, at.counts.len() as u32);
        self.counts.extend(at.counts.iter().map(|count| TokenCount {
            token: count.token,
            in_prompt: u32::from(count.in_prompt),
            output: count.output,
        }));
        (params.bias_at, params.num_bias) = (self.biases.len() as u32, at.bias.len() as u32);
        let biases = at.bias.iter();
        self.biases
            .extend(biases.map(|&(token, bias)| TokenBias { token, bias }));
        (params.extras_at, params.num_extras) = (self.extras.len() as u32, at.extras.len() as u32);
        for &token in &at.extras {
            self.extras.push(self.tokens.len() as u32);
            self.tokens.push(token);
        }
        if let Some(mask) = &at.mask {
            params.mask = (self.masks.len() / vocab.div_ceil(32)) as u32;
            self.masks.extend(mask);
        }
        self.params.push(params);
    }
}

/// Draws at all positions and compares everything with the host.
fn check(case: &mut Case, rows: &[Vec<f32>], positions: &[Option<Position>]) {
    let vocab = rows[0].len();
    let mut lists = Lists::default();
    for (row, at) in positions.iter().enumerate() {
        match at {
            Some(at) => lists.add(at, row as u32, vocab),
            None => lists.params.push(DrawParams::NONE),
        }
    }
    let num_positions = positions.len();
    let kernel = DrawTokens {
        drawn: case.unwritten(num_positions),
        statuses: case.unwritten(num_positions),
        params: case.filled(&lists.params),
        logits: case.filled(&rows.concat()),
        edited: case.unwritten(num_positions * vocab),
        counts: case.filled(&lists.counts),
        biases: case.filled(&lists.biases),
        extras: case.filled(&lists.extras),
        tokens: case.filled(&lists.tokens),
        masks: case.filled(&lists.masks),
        vocab: vocab as i32,
    };
    kernel
        .launch(&case.bench.queue, num_positions)
        .expect("a launch");
    let drawn = case.read(kernel.drawn, num_positions);
    let statuses = case.read(kernel.statuses, num_positions);
    let logprobs = Logprobs {
        drawn_logprobs: case.unwritten(num_positions),
        top_tokens: case.unwritten(num_positions * TOP_LOGPROBS_MAX),
        top_logprobs: case.unwritten(num_positions * TOP_LOGPROBS_MAX),
        drawn: kernel.drawn,
        params: kernel.params,
        logits: kernel.logits,
        vocab: vocab as i32,
    };
    logprobs
        .launch(&case.bench.queue, num_positions)
        .expect("a launch");
    let of_drawn = case.read(logprobs.drawn_logprobs, num_positions);
    let top_tokens = case.read(logprobs.top_tokens, num_positions * TOP_LOGPROBS_MAX);
    let top_logprobs = case.read(logprobs.top_logprobs, num_positions * TOP_LOGPROBS_MAX);
    for (idx, at) in positions.iter().enumerate() {
        let found = (drawn[idx], statuses[idx]);
        let Some(at) = at else {
            assert_eq!(found, (NO_ID, DRAWN), "padding");
            continue;
        };
        let expected = expect(&rows[idx], at);
        let (token, status) = match &expected {
            Ok(draw) => (draw.token, DRAWN),
            Err(DrawError::NotFinite { .. }) => (NO_ID, NOT_FINITE),
            Err(DrawError::NothingAllowed) => (NO_ID, NOTHING_ALLOWED),
            Err(DrawError::UnknownToken { .. }) => (NO_ID, UNKNOWN_TOKEN),
            Err(error) => panic!("{error} for {at:?}"),
        };
        assert_eq!(found, (token, status), "vocabulary {vocab}, {at:?}");
        case.num_compared += 1;
        let Some(logprob) = expected.as_ref().ok().and_then(|draw| draw.logprob) else {
            continue;
        };
        case.same(
            "logprob of the drawn token",
            &of_drawn[idx..=idx],
            &[logprob],
        );
        let listed = idx * TOP_LOGPROBS_MAX..(idx + 1) * TOP_LOGPROBS_MAX;
        let mut expected = expected.expect("a draw").top;
        let num_listed = expected.len();
        let found = &top_logprobs[listed.clone()][..num_listed];
        let values: Vec<f32> = expected.iter().map(|&(_, logprob)| logprob).collect();
        case.same("logprobs", found, &values);
        expected.resize(TOP_LOGPROBS_MAX, (NO_ID, 0.0));
        let tokens: Vec<u32> = expected.iter().map(|&(token, _)| token).collect();
        case.equal("tokens that rank first", &top_tokens[listed], &tokens);
    }
}

#[test]
fn tokens_are_drawn_as_on_the_host() {
    agree(60, |case| {
        let vocab = match case.rng.below(6) {
            0 => case.rng.between(1, 40),
            1 => case.rng.between(5000, 9000),
            _ => case.rng.between(100, 1500),
        };
        let num_positions = case.rng.between(1, 5);
        let rows: Vec<_> = (0..num_positions).map(|_| logits(case, vocab)).collect();
        let positions: Vec<_> = (0..num_positions)
            .map(|_| (case.rng.below(6) > 0).then(|| position(case, vocab)))
            .collect();
        if positions.iter().all(Option::is_none) {
            case.num_compared += 1;
        }
        check(case, &rows, &positions);
    });
}

#[test]
fn what_cannot_be_drawn_is_refused_as_on_the_host() {
    agree(12, |case| {
        let vocab = 333;
        let plain = Position {
            params: SamplerParams {
                temperature: 1.0,
                ..SamplerParams::GREEDY
            },
            position: 9,
            counts: Vec::new(),
            extras: Vec::new(),
            bias: Vec::new(),
            mask: None,
            top_logprobs: Some(3),
        };
        let mut rows: Vec<_> = (0..5).map(|_| logits(case, vocab)).collect();
        rows[0][case.rng.below(vocab)] = case.rng.pick(&[f32::NAN, f32::INFINITY]);
        let nothing = Position {
            mask: Some(vec![0; vocab.div_ceil(32)]),
            ..plain.clone()
        };
        let unknown = Position {
            bias: vec![(1, 1.0), (vocab as u32, 1.0)],
            ..plain.clone()
        };
        let overflows = Position {
            bias: vec![(4, f32::MAX), (4, f32::MAX)],
            ..plain.clone()
        };
        let behind = Position {
            mask: Some([vec![0; vocab / 32], vec![!0 << (vocab % 32)]].concat()),
            ..plain.clone()
        };
        let all = [plain, nothing, unknown, overflows, behind];
        check(case, &rows, &all.map(Some));
    });
}
