//! Sampling parameters from a request's fields: their ranges, the package's defaults and ranges,
//! and the seed.
//!
//! A value outside the package's range must never pass silently: it is moved and reported, or
//! refused.

use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::model::{ModelContract, SamplingRanges};
use crate::state::SamplingPolicy;
use lockstep_step::{SamplingParams, TokenId, planted};
use serde_json::{Value, json};

/// What a request says about sampling.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AskedSampling {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    min_p: Option<f64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    repetition_penalty: Option<f64>,
    bias: Vec<(TokenId, f32)>,
    seed: Option<i64>,
}

/// What is used, and what of it was not asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsedSampling {
    pub(crate) params: SamplingParams,
    /// One entry per parameter that was moved.
    pub(crate) warnings: Vec<Value>,
}

impl AskedSampling {
    pub(crate) fn read(
        fields: &mut Fields<'_>,
        vocab_size: u32,
        bias_max: usize,
    ) -> Result<AskedSampling, ApiError> {
        let signed = |number: f64| (-2.0..=2.0).contains(&number);
        Ok(AskedSampling {
            temperature: fields
                .number("temperature", "from 0 to 2", |t| (0.0..=2.0).contains(&t))?,
            top_p: fields.number("top_p", "above 0 and up to 1", |p| p > 0.0 && p <= 1.0)?,
            top_k: fields
                .integer("top_k", -1, i64::from(u32::MAX))?
                .map(|k| u32::try_from(k).unwrap_or(0)),
            min_p: fields.number("min_p", "from 0 to 1", |p| (0.0..=1.0).contains(&p))?,
            frequency_penalty: fields.number("frequency_penalty", "from -2 to 2", signed)?,
            presence_penalty: fields.number("presence_penalty", "from -2 to 2", signed)?,
            repetition_penalty: fields.number(
                "repetition_penalty",
                "above 0 and up to 100",
                |penalty| penalty > 0.0 && penalty <= 100.0,
            )?,
            bias: bias(fields, vocab_size, bias_max)?,
            seed: fields.integer("seed", i64::MIN, i64::MAX)?,
        })
    }

    /// Fills in defaults, keeps to the ranges, and draws a seed if there is none.
    pub(crate) fn resolve(
        self,
        contract: &ModelContract,
        ranges: &SamplingRanges,
        policy: SamplingPolicy,
    ) -> Result<UsedSampling, ApiError> {
        let defaults = &contract.sampling;
        let mut keeper = RangeKeeper {
            policy,
            warnings: Vec::new(),
        };
        // Planted: vllm-project/vllm#15241.
        let is_neutral = |t: &f64| planted!(DefaultsOverNeutral) && *t == 1.0;
        let asked = self.temperature.filter(|t| !is_neutral(t));
        let temperature = asked.unwrap_or(defaults.temperature);
        let top_p = self.top_p.unwrap_or(defaults.top_p);
        let min_p = self.min_p.unwrap_or(defaults.min_p);
        let repetition = self
            .repetition_penalty
            .unwrap_or(defaults.repetition_penalty);
        let top_k = self.top_k.unwrap_or(defaults.top_k);
        let params = SamplingParams {
            temperature: keeper.keep("temperature", temperature, ranges.temperature)? as f32,
            top_k: keeper.keep_top_k(top_k, ranges.top_k)?,
            top_p: keeper.keep("top_p", top_p, ranges.top_p)? as f32,
            min_p: keeper.keep("min_p", min_p, ranges.min_p)? as f32,
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0) as f32,
            presence_penalty: self.presence_penalty.unwrap_or(0.0) as f32,
            repetition_penalty: keeper.keep(
                "repetition_penalty",
                repetition,
                ranges.repetition_penalty,
            )? as f32,
            bias: self.bias,
            seed: match self.seed {
                Some(seed) => seed as u64,
                None => drawn_seed()?,
            },
            top_logprobs: None,
        };
        Ok(UsedSampling {
            params,
            warnings: keeper.warnings,
        })
    }
}

/// The seed of a choice: the first choice has the request's own, choice `i` a mix of the seed and
/// `i`, small enough that every JSON reader keeps it whole. Asking for that seed with `n = 1`
/// repeats the choice.
pub(crate) fn choice_seed(seed: u64, choice: u32) -> u64 {
    if choice == 0 {
        return seed;
    }
    // The finaliser of SplitMix64.
    let mut mixed = seed.wrapping_add(u64::from(choice).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) >> 11
}

/// A seed of 53 bits, which every JSON reader keeps whole.
fn drawn_seed() -> Result<u64, ApiError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        ApiError::new(500, "no_randomness", format!("can't draw a seed: {error}"))
    })?;
    Ok(u64::from_le_bytes(bytes) >> 11)
}

struct RangeKeeper {
    policy: SamplingPolicy,
    warnings: Vec<Value>,
}

impl RangeKeeper {
    fn keep(
        &mut self,
        name: &'static str,
        asked: f64,
        range: Option<(f64, f64)>,
    ) -> Result<f64, ApiError> {
        let Some((min, max)) = range.filter(|(min, max)| asked < *min || asked > *max) else {
            return Ok(asked);
        };
        let used = if asked < min { min } else { max };
        self.outside(name, json!(asked), json!(used), json!([min, max]))?;
        Ok(used)
    }

    fn keep_top_k(&mut self, asked: u32, range: Option<(u32, u32)>) -> Result<u32, ApiError> {
        // 0 keeps all tokens, so it is larger than any other value.
        let size = |k: u32| {
            if k == 0 {
                u64::from(u32::MAX) + 1
            } else {
                u64::from(k)
            }
        };
        let inside = |(min, max): (u32, u32)| (size(min)..=size(max)).contains(&size(asked));
        let Some((min, max)) = range.filter(|range| !inside(*range)) else {
            return Ok(asked);
        };
        let used = if size(asked) < size(min) { min } else { max };
        self.outside("top_k", json!(asked), json!(used), json!([min, max]))?;
        Ok(used)
    }

    fn outside(
        &mut self,
        name: &'static str,
        asked: Value,
        used: Value,
        range: Value,
    ) -> Result<(), ApiError> {
        let message = format!(
            "{name} is {asked}, this model's range is {} to {}",
            range[0], range[1]
        );
        if self.policy == SamplingPolicy::Refuse {
            return Err(ApiError::field("outside_model_range", name, message));
        }
        self.warnings.push(json!({
            "code": "clamped",
            "field": name,
            "asked": asked,
            "used": used,
            "message": format!("{message}; {used} was used"),
        }));
        Ok(())
    }
}

/// `logit_bias`: token ids as keys, numbers from -100 to 100 as values.
fn bias(
    fields: &mut Fields<'_>,
    vocab_size: u32,
    bias_max: usize,
) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(object) = fields.object("logit_bias")? else {
        return Ok(Vec::new());
    };
    let map = object.map();
    if map.len() > bias_max {
        let message = format!(
            "logit_bias has {} tokens, expected at most {bias_max}",
            map.len()
        );
        return Err(ApiError::field("too_many", "logit_bias", message));
    }
    let mut bias = Vec::with_capacity(map.len());
    for (key, value) in map {
        let path = object.path(key);
        let id = key.parse::<u32>().ok().filter(|id| *id < vocab_size);
        let Some(id) = id else {
            let message = format!(
                "logit_bias has the key {key:?}, expected a token id from 0 to {}",
                vocab_size.saturating_sub(1)
            );
            return Err(ApiError::field("invalid_value", path, message));
        };
        let amount = value
            .as_f64()
            .filter(|amount| (-100.0..=100.0).contains(amount));
        let Some(amount) = amount else {
            return Err(ApiError::value(path, value, "a number from -100 to 100"));
        };
        bias.push((TokenId(id), amount as f32));
    }
    bias.sort_by_key(|(token, _)| *token);
    if let Some(pair) = bias.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        // "7" and "07" are two keys and one token.
        let message = format!("logit_bias names token {} twice", pair[0].0);
        return Err(ApiError::field("invalid_value", "logit_bias", message));
    }
    Ok(bias)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SamplingDefaults;
    use lockstep_tags::TagFormat;

    fn contract() -> ModelContract {
        ModelContract {
            end_tokens: Vec::new(),
            sampling: SamplingDefaults::default(),
            ranges: SamplingRanges::default(),
            tag_format: TagFormat::Plain,
            reasoning_close: None,
            refused_in_prompts: Vec::new(),
            refused_in_output: Vec::new(),
            vocab_size: 100,
        }
    }

    fn resolve(body: Value, policy: SamplingPolicy) -> Result<UsedSampling, String> {
        let ranges = SamplingRanges {
            temperature: Some((0.5, 1.5)),
            top_k: Some((5, 0)),
            ..SamplingRanges::default()
        };
        let mut fields = Fields::new(&body, "").map_err(|error| error.message)?;
        let asked = AskedSampling::read(&mut fields, 100, 10).map_err(|error| error.message)?;
        asked
            .resolve(&contract(), &ranges, policy)
            .map_err(|error| error.message)
    }

    #[test]
    fn outside_the_range_is_moved_and_said_or_refused() {
        let body = json!({"temperature": 0, "top_k": 2, "seed": -1});
        let used = resolve(body.clone(), SamplingPolicy::Clamp).expect("clamped");
        assert_eq!(used.params.temperature, 0.5);
        assert_eq!(used.params.top_k, 5);
        assert_eq!(used.params.seed, u64::MAX);
        let params: Vec<&Value> = used
            .warnings
            .iter()
            .map(|warning| &warning["field"])
            .collect();
        assert_eq!(params, ["temperature", "top_k"]);
        assert_eq!(used.warnings[0]["asked"], json!(0.0));
        assert_eq!(used.warnings[0]["used"], json!(0.5));
        let refused = resolve(body, SamplingPolicy::Refuse);
        let message = "temperature is 0.0, this model's range is 0.5 to 1.5";
        assert_eq!(refused, Err(message.to_string()));
    }

    #[test]
    fn inside_the_range_nothing_is_said() {
        let body = json!({"temperature": 1.5, "top_k": 0});
        let used = resolve(body, SamplingPolicy::Refuse).expect("inside");
        assert_eq!(used.warnings, Vec::<Value>::new());
        assert!(used.params.seed < 1 << 53);
    }

    #[test]
    fn seeds_of_choices_differ_and_the_first_is_the_request_s() {
        assert_eq!(choice_seed(42, 0), 42);
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|i| choice_seed(42, i)).collect();
        assert_eq!(seeds.len(), 100);
        assert_eq!(choice_seed(42, 1), choice_seed(42, 1));
    }
}
