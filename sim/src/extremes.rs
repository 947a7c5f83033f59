//! What a few requests are: as long as anything can be, unlike all others from the first word on, of exactly as many
//! tokens as blocks have, or so many at once that their beginnings fill the cache. Each is drawn from a seed of its
//! own, so that all other requests stay as they are.

use crate::model::ToyModel;
use crate::options::{Feature, Options};
use crate::rng::Rng;
use crate::workload::Route;
use lockstep_step::BLOCK_LEN;
use serde_json::{Value, json};

/// Prompts of a request that has many.
const NUM_BEGINNINGS: usize = 60;

/// Something else in place of a request.
pub fn instead(options: &Options, id: &str) -> Option<(Route, Value)> {
    match id {
        "c0r0" | "c1r0" => many_beginnings(options, id),
        _ => whole_blocks(options, id),
    }
}

/// As many prompts as one request may have, none of which begins like another.
fn many_beginnings(options: &Options, id: &str) -> Option<(Route, Value)> {
    let mut rng = Rng::new(options.seed, &format!("beginnings of {id}"));
    let engine = &options.engine;
    let is_slow = engine.max_num_batched_tokens.min(engine.chunk_tokens_max) < 12;
    let may = options.has(Feature::PrefixCache) && !options.has(Feature::Embedded);
    if !may || is_slow || !rng.percent(60) {
        return None;
    }
    let prompts: Vec<String> = (0..NUM_BEGINNINGS)
        .map(|_| letters(&mut rng, 100))
        .collect();
    let body = json!({
        "model": "sim",
        "prompt": prompts,
        "max_tokens": 1,
        "temperature": 0,
        "seed": 1,
    });
    Some((Route::Completions, body))
}

fn letters(rng: &mut Rng, count: u64) -> String {
    let letters = (0..count).map(|_| char::from(b'a' + rng.below(26) as u8));
    letters.collect()
}

/// A prompt of exactly one or two blocks: the same for all that ask it.
fn whole_blocks(options: &Options, id: &str) -> Option<(Route, Value)> {
    let mut rng = Rng::new(options.seed, &format!("instead of {id}"));
    let may = options.has(Feature::Completions) && !options.has(Feature::Embedded);
    if !may || !rng.percent(10) {
        return None;
    }
    let num_tokens = (BLOCK_LEN as usize) << rng.below(2);
    let body = json!({
        "model": "sim",
        "prompt": of_length(&ToyModel::new(options.format), num_tokens)?,
        "max_tokens": rng.within(1, 20),
        "temperature": 0,
        "seed": rng.below(1000),
        "stream": rng.percent(60),
    });
    Some((Route::Completions, body))
}

/// A text of exactly so many tokens.
fn of_length(model: &ToyModel, num_tokens: usize) -> Option<String> {
    let story =
        "A ship of the line, a harbour at dusk, and nobody who knows the way home. ".repeat(9);
    let ends = 1..story.len();
    let is_long_enough = |end: &usize| model.encode(&story[..*end], true).len() == num_tokens;
    let end = ends.into_iter().find(is_long_enough)?;
    Some(story[..end].to_owned())
}

/// Makes a request longer than others are, now and then.
pub fn stretch(options: &Options, id: &str, body: &mut Value) {
    let mut rng = Rng::new(options.seed, &format!("stretch {id}"));
    if options.has(Feature::Embedded) {
        return;
    }
    if rng.percent(4) {
        body["max_tokens"] = json!(2000);
        body["ignore_eos"] = json!(true);
    }
    if rng.percent(25) {
        let count = rng.within(80, 150);
        let letters = letters(&mut rng, count);
        let first = match body.get_mut("messages") {
            Some(messages) => messages
                .get_mut(0)
                .and_then(|first| first.get_mut("content")),
            None => body.get_mut("prompt"),
        };
        if let Some(Value::String(text)) = first {
            text.insert_str(0, &letters);
        }
    }
}
