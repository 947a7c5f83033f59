//! The sampler at every vector width against its definition: lists that are sorted as a whole, and weights
//! that are added one by one. The same definition, told once more than in `backends/numerics`.

use super::note_held;
use crate::decode::byte;
use arbitrary::{Arbitrary, Unstructured};
use lockstep_numerics::Level;
use lockstep_numerics::elementary::exp;
use lockstep_numerics::philox::draw_u64;
use lockstep_numerics::sampler::{Draw, DrawError, ONE, Sampler, SamplerParams, TokenCount};

#[derive(Arbitrary)]
struct Numbers {
    temperature: u16,
    top_k: u16,
    top_p: u16,
    min_p: u16,
    frequency: i8,
    presence: i8,
    repetition: u8,
    seed: u8,
    position: u16,
    top_logprobs: u8,
    has_mask: bool,
    num_counts: u8,
    num_bias: u8,
}

#[derive(Debug)]
struct Case {
    logits: Vec<f32>,
    params: SamplerParams,
    counts: Vec<TokenCount>,
    bias: Vec<(u32, f32)>,
    mask: Option<Vec<u32>>,
    position: u64,
    top_logprobs: Option<u32>,
}

/// Parameters, and a row of logits.
pub fn sampler(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Some(case) = Case::read(&mut input) else {
        return;
    };
    note_held();
    let expected = case.defined();
    for level in Level::available() {
        let mut sampler = Sampler::at(level);
        // Twice: what a draw leaves behind must not show in the next.
        for _ in 0..2 {
            let drawn = case.draw(&mut sampler);
            match (&drawn, &expected) {
                (Ok(draw), Ok(token)) => assert_eq!(draw.token, *token, "{level:?}: {case:?}"),
                (Err(error), Err(expected)) => assert_eq!(error, expected, "{level:?}: {case:?}"),
                _ => panic!("{level:?}: {drawn:?}, expected {expected:?} of {case:?}"),
            }
            if let (Ok(draw), Ok(scalar)) = (&drawn, case.draw(&mut Sampler::at(Level::Scalar))) {
                assert_eq!(bits(draw), bits(&scalar), "{level:?}: {case:?}");
            }
        }
    }
}

/// A draw with its floats as encodings.
fn bits(draw: &Draw) -> (u32, Option<u32>, Vec<(u32, u32)>) {
    let top = draw.top.iter().map(|top| (top.0, top.1.to_bits()));
    (draw.token, draw.logprob.map(f32::to_bits), top.collect())
}

impl Case {
    fn read(input: &mut Unstructured<'_>) -> Option<Case> {
        let numbers = Numbers::arbitrary(input).ok()?;
        let share = |number: u16| f32::from(number) / f32::from(u16::MAX);
        // Half of all values are the neutral ones.
        let or = |number: u16, neutral: f32, value: f32| match number & 1 {
            0 => neutral,
            _ => value,
        };
        let has_penalties = numbers.repetition & 1 == 1;
        let penalty = |number: i8| match has_penalties {
            true => f32::from(number) / 32.0,
            false => 0.0,
        };
        let params = SamplerParams {
            temperature: or(numbers.temperature, 1.0, share(numbers.temperature) * 3.0),
            top_k: u32::from(numbers.top_k) * u32::from(numbers.top_k & 1),
            top_p: or(numbers.top_p, 1.0, share(numbers.top_p)),
            min_p: or(numbers.min_p, 0.0, share(numbers.min_p)),
            frequency_penalty: penalty(numbers.frequency),
            presence_penalty: penalty(numbers.presence),
            repetition_penalty: match has_penalties {
                true => f32::from(numbers.repetition) / 64.0,
                false => 1.0,
            },
            seed: u64::from(numbers.seed),
        };
        let logits = logits(input);
        let num_tokens = logits.len() as u64;
        if num_tokens == 0 {
            return None;
        }
        let noise = |idx: u64| draw_u64(params.seed + 1, idx);
        let token = |idx: u64| (noise(idx) % num_tokens) as u32;
        let mut counts: Vec<TokenCount> = (0..u64::from(numbers.num_counts % 9))
            .map(|idx| TokenCount {
                token: token(idx),
                in_prompt: idx % 2 == 0,
                output: (noise(idx) >> 40) as u32 % 4,
            })
            .collect();
        counts.sort_by_key(|count| count.token);
        counts.dedup_by_key(|count| count.token);
        let bias = (0..u64::from(numbers.num_bias % 5)).map(|idx| (token(100 + idx), idx as f32));
        let words = (0..num_tokens.div_ceil(32)).map(|word| noise(1000 + word) as u32);
        Some(Case {
            bias: bias
                .map(|(token, step)| (token, step * 3.0 - 4.0))
                .collect(),
            mask: numbers.has_mask.then(|| words.collect()),
            position: u64::from(numbers.position),
            top_logprobs: (numbers.top_logprobs & 1 == 1).then_some(numbers.top_logprobs.into()),
            logits,
            params,
            counts,
        })
    }

    fn draw(&self, sampler: &mut Sampler) -> Result<Draw, DrawError> {
        sampler.draw(
            &self.logits,
            &self.params,
            &self.counts,
            &self.bias,
            self.mask.as_deref(),
            self.position,
            self.top_logprobs,
        )
    }

    fn allows(&self, token: usize) -> bool {
        let bit = |mask: &Vec<u32>| mask[token / 32] >> (token % 32) & 1 == 1;
        self.mask.as_ref().is_none_or(bit)
    }

    /// Steps 1 to 3: what is left to draw from, best first.
    fn ranked(&self) -> Result<Vec<(u32, f32)>, DrawError> {
        let not_finite = |logits: &[f32]| logits.iter().position(|logit| !logit.is_finite());
        let refused = |token: usize| DrawError::NotFinite {
            token: token as u32,
        };
        if let Some(token) = not_finite(&self.logits) {
            return Err(refused(token));
        }
        let params = &self.params;
        let mut logits = self.logits.clone();
        for count in &self.counts {
            let logit = &mut logits[count.token as usize];
            if count.in_prompt || count.output > 0 {
                *logit = match *logit > 0.0 {
                    true => *logit / params.repetition_penalty,
                    false => *logit * params.repetition_penalty,
                };
            }
            let (penalty, num) = (-params.frequency_penalty, count.output as f32);
            *logit = penalty.mul_add(num, *logit);
            if count.output > 0 {
                *logit -= params.presence_penalty;
            }
        }
        for &(token, bias) in &self.bias {
            logits[token as usize] += bias;
        }
        if let Some(token) = not_finite(&logits) {
            return Err(refused(token));
        }
        let mut ranked: Vec<(u32, f32)> = (0..logits.len())
            .filter(|&token| self.allows(token))
            .map(|token| (token as u32, logits[token]))
            .collect();
        // `-0` and `0` are equals, as in the ranking.
        ranked.sort_by(|a, b| {
            let descending = b.1.partial_cmp(&a.1).expect("all are finite");
            descending.then(a.0.cmp(&b.0))
        });
        match ranked.is_empty() {
            true => Err(DrawError::NothingAllowed),
            false => Ok(ranked),
        }
    }

    /// The token, by the definition.
    fn defined(&self) -> Result<u32, DrawError> {
        let params = &self.params;
        let mut ranked = self.ranked()?;
        if params.temperature == 0.0 {
            return Ok(ranked[0].0);
        }
        if params.top_k > 0 {
            ranked.truncate(params.top_k as usize);
        }
        let max = ranked[0].1;
        let weight = |logit: f32| {
            let share = exp((logit - max) / params.temperature);
            (f64::from(share) * ONE as f64).floor() as u64
        };
        let mut left: Vec<(u32, u64)> = ranked
            .iter()
            .map(|&(t, logit)| (t, weight(logit)))
            .collect();
        if params.top_p < 1.0 {
            let total: u128 = left.iter().map(|token| u128::from(token.1)).sum();
            let limit = (f64::from(params.top_p) * ONE as f64).floor() as u128 * total;
            let (mut before, mut num_kept) = (0u128, 0);
            while num_kept < left.len() && (num_kept == 0 || before * u128::from(ONE) < limit) {
                before += u128::from(left[num_kept].1);
                num_kept += 1;
            }
            left.truncate(num_kept);
        }
        let least = (f64::from(params.min_p) * ONE as f64).ceil() as u64;
        left.retain(|token| token.1 >= least && token.1 > 0);
        left.sort_unstable();
        let total: u128 = left.iter().map(|token| u128::from(token.1)).sum();
        let target = (u128::from(draw_u64(params.seed, self.position)) * total) >> 64;
        let mut sum = 0u128;
        let drawn = left.iter().find(|token| {
            sum += u128::from(token.1);
            sum > target
        });
        Ok(drawn.expect("the sum of all exceeds the target").0)
    }
}

/// A row: raw encodings, coarse values with many ties, or one value over and over.
fn logits(input: &mut Unstructured<'_>) -> Vec<f32> {
    let kind = byte(input);
    let repeats = usize::from(byte(input)) % 64 + 1;
    let bytes = std::mem::replace(input, Unstructured::new(&[])).take_rest();
    let values: Vec<f32> = match kind % 3 {
        0 => {
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().map(|word| f32::from_le_bytes(*word)).collect()
        }
        1 => bytes
            .iter()
            .map(|&byte| f32::from(byte as i8) / 4.0)
            .collect(),
        _ => bytes
            .iter()
            .map(|&byte| f32::from(byte as i8) * 0.0)
            .collect(),
    };
    // Long rows pass the first block of the ranking.
    let num = (values.len() * repeats).min(6000);
    values.iter().cycle().take(num).copied().collect()
}
