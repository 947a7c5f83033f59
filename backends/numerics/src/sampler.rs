//! From a row of logits to one drawn token, in fixed point.
//!
//! Must never depend on anything but its arguments: no state survives a draw (the struct holds
//! scratch memory only), and the noise is a function of (seed, position).
//!
//! The order of processing, which is the definition:
//! 1. **Penalties**, token by token: repetition (prompt or output holds it: `l / r` if `l > 0`,
//!    else `l * r`), then frequency (`fma(-f, count, l)`), then presence (`l - p` if `count > 0`).
//! 2. **Bias**: `l + b`, in the order given.
//! 3. **Mask**: a token whose bit is 0 is out.
//! 4. **Temperature** and weight: `w = floor(exp((l - l_max) / T) * 2^32)` as u64, `l_max` the
//!    highest logit that the mask allows. At `T = 0` the draw is the highest logit, and the rest
//!    is skipped.
//! 5. **top-k**: the k first of the ranking. There is one ranking throughout: higher `l` (before
//!    temperature) first, and the lower token id first among equals.
//! 6. **top-p**: a token stays if the weights ranked before it sum to less than `p` of all weights
//!    that top-k left: `before * 2^32 < floor(p * 2^32) * total`. The first always stays.
//! 7. **min-p**: a token stays if `w >= ceil(min_p * 2^32)`; the highest has `w = 2^32`.
//! 8. **Draw**: the first token, by ascending id, at which the running sum of weights exceeds
//!    `(u * total) >> 64`, where `u` is the 64-bit Philox draw and `total` sums what was left.
//!
//! Log-probabilities are of the raw row, before step 1: `(l - max) - log(sum exp(l - max))` with
//! the sum in lanes(64).

mod rank;
mod scan;
#[cfg(test)]
mod tests;

use core::fmt;

use crate::lanes::{Level, dispatch_at};
use crate::philox::draw_u64;
use rank::{Candidate, TopP};

/// `1.0` in the fixed point of weights.
pub const ONE: u64 = 1 << 32;

/// How to sample; the names and neutral values are those of the public APIs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerParams {
    /// 0 is greedy; otherwise finite and positive.
    pub temperature: f32,
    /// Number of tokens kept; 0 keeps all.
    pub top_k: u32,
    /// 0..=1; 1 keeps all.
    pub top_p: f32,
    /// 0..=1; 0 keeps all.
    pub min_p: f32,
    /// Subtracted once per occurrence in the output; 0 is neutral.
    pub frequency_penalty: f32,
    /// Subtracted once if the output holds the token; 0 is neutral.
    pub presence_penalty: f32,
    /// Positive; 1 is neutral.
    pub repetition_penalty: f32,
    /// Key of the noise.
    pub seed: u64,
}

impl SamplerParams {
    /// Greedy, with everything neutral.
    pub const GREEDY: SamplerParams = SamplerParams {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        repetition_penalty: 1.0,
        seed: 0,
    };

    /// Fails if a parameter is outside of its range.
    ///
    /// # Errors
    /// The first such, by its name.
    pub fn check(&self) -> Result<(), DrawError> {
        let unit = 0.0..=1.0;
        let finite = |x: f32| x.is_finite();
        let rules = [
            (
                "temperature",
                self.temperature,
                finite(self.temperature) && self.temperature >= 0.0,
            ),
            ("top_p", self.top_p, unit.contains(&self.top_p)),
            ("min_p", self.min_p, unit.contains(&self.min_p)),
            (
                "frequency_penalty",
                self.frequency_penalty,
                finite(self.frequency_penalty),
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                finite(self.presence_penalty),
            ),
            (
                "repetition_penalty",
                self.repetition_penalty,
                finite(self.repetition_penalty) && self.repetition_penalty > 0.0,
            ),
        ];
        match rules.into_iter().find(|(_, _, holds)| !holds) {
            Some((name, value, _)) => Err(DrawError::BadParameter { name, value }),
            None => Ok(()),
        }
    }

    fn penalises(&self) -> bool {
        self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
            || self.repetition_penalty != 1.0
    }
}

/// How often a token has occurred; each token is listed at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenCount {
    /// Its id.
    pub token: u32,
    /// Whether the prompt holds it.
    pub in_prompt: bool,
    /// Number of times that the output holds it.
    pub output: u32,
}

/// What was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// The token.
    pub token: u32,
    /// Its log-probability in the raw distribution, if log-probabilities were asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens of the raw distribution with their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// Why nothing could be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DrawError {
    /// The logit of this token is NaN or infinite, as given or after penalties and bias.
    NotFinite {
        /// The lowest such id.
        token: u32,
    },
    /// The mask allows no token.
    NothingAllowed,
    /// The row of logits is empty.
    EmptyRow,
    /// A sampling parameter is outside of its range.
    BadParameter {
        /// The field's name.
        name: &'static str,
        /// Its value.
        value: f32,
    },
    /// A count or a bias names a token that the row doesn't have.
    UnknownToken {
        /// The id.
        token: u32,
        /// Length of the row.
        vocab: usize,
    },
    /// The mask isn't one bit per token, in whole words.
    MaskWidth {
        /// 32-bit words given.
        words: usize,
        /// 32-bit words that the row asks for.
        expected: usize,
    },
}

impl fmt::Display for DrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrawError::NotFinite { token } => {
                write!(
                    f,
                    "the logit of token {token} is NaN or infinite, expected a finite value"
                )
            }
            DrawError::NothingAllowed => write!(f, "the mask allows no token"),
            DrawError::EmptyRow => write!(f, "the row of logits is empty"),
            DrawError::BadParameter { name, value } => {
                write!(
                    f,
                    "sampling parameter {name} is {value}, outside of its range"
                )
            }
            DrawError::UnknownToken { token, vocab } => {
                write!(f, "token {token} is outside of the vocabulary of {vocab}")
            }
            DrawError::MaskWidth { words, expected } => {
                write!(
                    f,
                    "the mask has {words} words of 32 bits, expected {expected}"
                )
            }
        }
    }
}

impl core::error::Error for DrawError {}

/// Draws tokens. Holds scratch memory that is reused between draws, and nothing else.
#[derive(Debug)]
pub struct Sampler {
    level: Level,
    /// Logits after penalties, bias and mask; disallowed tokens hold negative infinity.
    processed: Vec<f32>,
    /// Terms on their way to weights.
    terms: Vec<f32>,
    /// Keys of a top-k selection.
    keys: Vec<u64>,
    /// Tokens that may be drawn, by ascending id.
    candidates: Vec<Candidate>,
    /// Scratch memory of top-p.
    top_p: TopP,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler::new()
    }
}

impl Sampler {
    /// A sampler with empty scratch memory, at the widest level of this CPU.
    pub fn new() -> Sampler {
        Sampler::at(Level::detect())
    }

    /// A sampler at a given level; the level can't be seen in what it draws.
    pub fn at(level: Level) -> Sampler {
        Sampler {
            level,
            processed: Vec::new(),
            terms: Vec::new(),
            keys: Vec::new(),
            candidates: Vec::new(),
            top_p: TopP::new(),
        }
    }

    /// Draws the token of one scored position.
    ///
    /// `logits` is one value per token. `mask` has one bit per token, 1 = allowed, token
    /// `32 * w + b` in bit `b` of word `w`; bits beyond the vocabulary are ignored. `position` is
    /// that of the drawn token in its sequence. `top_logprobs` asks for log-probabilities and
    /// names how many alternatives to list.
    ///
    /// # Errors
    /// See [`DrawError`]; parameters are checked first, then the row, then what is done to it.
    #[allow(clippy::too_many_arguments)]
    pub fn draw(
        &mut self,
        logits: &[f32],
        params: &SamplerParams,
        counts: &[TokenCount],
        bias: &[(u32, f32)],
        mask: Option<&[u32]>,
        position: u64,
        top_logprobs: Option<u32>,
    ) -> Result<Draw, DrawError> {
        params.check()?;
        let raw = self.scan(logits)?;
        let edited = self.process(logits, params, counts, bias, mask)?;
        let row = if edited { &self.processed } else { logits };
        let max = if edited {
            dispatch_at(self.level, scan::Scan { row }).max
        } else {
            raw
        };
        if max == f32::NEG_INFINITY {
            return Err(DrawError::NothingAllowed);
        }
        let token = if params.temperature == 0.0 {
            dispatch_at(self.level, scan::FirstEqual { row, value: max }) as u32
        } else {
            self.weigh(if edited { None } else { Some(logits) }, max, params);
            self.narrow(params);
            choose(&self.candidates, draw_u64(params.seed, position))
        };
        let mut draw = Draw {
            token,
            logprob: None,
            top: Vec::new(),
        };
        if let Some(n) = top_logprobs {
            self.log_probabilities(logits, raw, n, &mut draw);
        }
        Ok(draw)
    }

    /// The highest logit, once all are known to be finite.
    fn scan(&self, logits: &[f32]) -> Result<f32, DrawError> {
        if logits.is_empty() {
            return Err(DrawError::EmptyRow);
        }
        let scanned = dispatch_at(self.level, scan::Scan { row: logits });
        if scanned.all_finite {
            return Ok(scanned.max);
        }
        let token = logits
            .iter()
            .position(|x| !x.is_finite())
            .unwrap_or_default() as u32;
        Err(DrawError::NotFinite { token })
    }

    /// Steps 1 to 3. Says whether `processed` was written, since a plain request needs no copy.
    fn process(
        &mut self,
        logits: &[f32],
        params: &SamplerParams,
        counts: &[TokenCount],
        bias: &[(u32, f32)],
        mask: Option<&[u32]>,
    ) -> Result<bool, DrawError> {
        let vocab = logits.len();
        let ids = counts
            .iter()
            .map(|c| c.token)
            .chain(bias.iter().map(|b| b.0));
        if let Some(token) = ids.into_iter().find(|&t| t as usize >= vocab) {
            return Err(DrawError::UnknownToken { token, vocab });
        }
        let expected = vocab.div_ceil(32);
        if let Some(words) = mask.map(<[u32]>::len).filter(|&w| w != expected) {
            return Err(DrawError::MaskWidth { words, expected });
        }
        let penalised = params.penalises() && !counts.is_empty();
        if !penalised && bias.is_empty() && mask.is_none() {
            return Ok(false);
        }
        self.processed.clear();
        self.processed.extend_from_slice(logits);
        if penalised {
            for count in counts {
                penalise(&mut self.processed[count.token as usize], params, count);
            }
        }
        for &(token, b) in bias {
            self.processed[token as usize] += b;
        }
        let touched = counts
            .iter()
            .map(|c| c.token)
            .chain(bias.iter().map(|b| b.0));
        if let Some(token) = touched
            .filter(|&t| !self.processed[t as usize].is_finite())
            .min()
        {
            return Err(DrawError::NotFinite { token });
        }
        if let Some(mask) = mask {
            dispatch_at(
                self.level,
                scan::ApplyMask {
                    row: &mut self.processed,
                    mask,
                },
            );
        }
        Ok(true)
    }

    /// Steps 4 and 5: fills `candidates`, by ascending id, with every token of positive weight.
    /// Reads the given row, or `processed`.
    fn weigh(&mut self, row: Option<&[f32]>, max: f32, params: &SamplerParams) {
        let row = row.unwrap_or(&self.processed);
        let k = params.top_k as usize;
        self.keys.clear();
        self.terms.clear();
        let selected = k > 0 && k < row.len();
        if selected {
            rank::top_k(self.level, row, k, &mut self.keys);
            self.keys.sort_unstable_by_key(|&key| rank::token(key));
            self.terms
                .extend(self.keys.iter().map(|&key| row[rank::token(key) as usize]));
        } else {
            self.terms.extend_from_slice(row);
        }
        let temperature = params.temperature;
        dispatch_at(
            self.level,
            scan::Weights {
                terms: &mut self.terms,
                max,
                temperature,
            },
        );
        self.candidates.clear();
        for (c, chunk) in self.terms.chunks(64).enumerate() {
            // A term below 1 has weight 0 and can't be drawn. Terms aren't negative, so their
            // encodings have their order, and this maximum is vectorised.
            let highest = chunk.iter().fold(0, |m, x| Ord::max(m, x.to_bits()));
            if highest < 1.0f32.to_bits() {
                continue;
            }
            // Written without a branch per term, kept by advancing `len`.
            let mut held = [Candidate { key: 0, weight: 0 }; 64];
            let mut len = 0;
            for (i, &term) in (c * 64..).zip(chunk) {
                let key = if selected {
                    self.keys[i]
                } else {
                    rank::key(row[i], i as u32)
                };
                // Terms are at most 2^32; the signed conversion is the fast one.
                held[len] = Candidate {
                    key,
                    weight: term as i64 as u64,
                };
                len += usize::from(term >= 1.0);
            }
            self.candidates.extend_from_slice(&held[..len]);
        }
    }

    /// Steps 6 and 7.
    fn narrow(&mut self, params: &SamplerParams) {
        if params.top_p < 1.0 {
            let cut = self.top_p.cut(&self.candidates, fixed_floor(params.top_p));
            self.candidates.retain(|c| c.key >= cut);
        }
        if params.min_p > 0.0 {
            let least = fixed_ceil(params.min_p);
            self.candidates.retain(|c| c.weight >= least);
        }
    }

    /// Log-probabilities of the raw row into `draw`.
    fn log_probabilities(&mut self, logits: &[f32], max: f32, n: u32, draw: &mut Draw) {
        let kernel = crate::reduce::Sum {
            term: crate::reduce::Term::Exp(max),
            values: logits,
        };
        let log_sum = crate::elementary::log(dispatch_at(self.level, kernel));
        let logprob = |token: u32| (logits[token as usize] - max) - log_sum;
        draw.logprob = Some(logprob(draw.token));
        let n = Ord::min(n as usize, logits.len());
        if n > 0 {
            self.keys.clear();
            rank::top_k(self.level, logits, n, &mut self.keys);
            self.keys.sort_unstable_by(|a, b| b.cmp(a));
            draw.top.extend(
                self.keys
                    .iter()
                    .map(|&k| (rank::token(k), logprob(rank::token(k)))),
            );
        }
    }
}

/// Step 1 for one token.
fn penalise(logit: &mut f32, params: &SamplerParams, count: &TokenCount) {
    let r = params.repetition_penalty;
    if count.in_prompt || count.output > 0 {
        *logit = if *logit > 0.0 { *logit / r } else { *logit * r };
    }
    *logit = (-params.frequency_penalty).mul_add(count.output as f32, *logit);
    if count.output > 0 {
        *logit -= params.presence_penalty;
    }
}

/// Step 8. There is always a candidate: the highest logit has weight 2^32 and survives every step.
fn choose(candidates: &[Candidate], u: u64) -> u32 {
    let total: u64 = candidates.iter().map(|c| c.weight).sum();
    let target = ((u128::from(u) * u128::from(total)) >> 64) as u64;
    let mut sum = 0;
    for c in candidates {
        sum += c.weight;
        if sum > target {
            return rank::token(c.key);
        }
    }
    unreachable!("the target is below the total of {total}");
}

/// `floor(x * 2^32)` for `x` in 0..=1, exact in float64.
fn fixed_floor(x: f32) -> u64 {
    (f64::from(x) * ONE as f64) as u64
}

/// `ceil(x * 2^32)` for `x` in 0..=1, exact in float64.
fn fixed_ceil(x: f32) -> u64 {
    (f64::from(x) * ONE as f64).ceil() as u64
}
