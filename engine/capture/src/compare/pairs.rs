//! Which sequences of two captures were asked the same. It must never pair two whose outputs may differ by what they
//! were asked.

use super::{Alone, Side};
use crate::capture::Capture;
use crate::record::{ConstraintRecord, Redaction, RequestRecord};
use lockstep_step::{SeqId, TokenId};
use std::collections::{BTreeMap, BTreeSet};

/// Pairs sequences by everything that an output depends on. Where several were asked the same, those of one request id
/// belong together, and the others in their order: by the law they all say the same.
pub(super) fn pair(
    a: &Capture,
    b: &Capture,
    redaction: Redaction,
) -> (Vec<(SeqId, SeqId)>, Vec<Alone>) {
    let (of_a, mut of_b) = (by_key(a, redaction), by_key(b, redaction));
    let mut pairs = Vec::new();
    for (key, own) in of_a {
        let Some(others) = of_b.get_mut(&key) else {
            continue;
        };
        let id = |capture: &Capture, seq: &SeqId| {
            let request = capture.requests.get(seq);
            request.map(|own| own.request_id.clone())
        };
        let mut left = Vec::new();
        for seq in own {
            let same = others.iter().position(|other| id(b, other) == id(a, &seq));
            match same {
                Some(at) => pairs.push((seq, others.remove(at))),
                None => left.push(seq),
            }
        }
        let num = left.len().min(others.len());
        pairs.extend(left.into_iter().zip(others.drain(..num)));
    }
    pairs.sort_unstable();
    let paired_a: BTreeSet<SeqId> = pairs.iter().map(|own| own.0).collect();
    let paired_b: BTreeSet<SeqId> = pairs.iter().map(|own| own.1).collect();
    let mut alone = Vec::new();
    for (side, own, other, paired) in [(Side::A, a, b, &paired_a), (Side::B, b, a, &paired_b)] {
        let nearest = others(other, redaction);
        for request in own
            .requests
            .values()
            .filter(|own| !paired.contains(&own.seq))
        {
            alone.push(Alone {
                side,
                seq: request.seq,
                request_id: request.request_id.clone(),
                choice: request.choice,
                why: why(&asked(request, redaction), &nearest),
            });
        }
    }
    (pairs, alone)
}

fn by_key(capture: &Capture, redaction: Redaction) -> BTreeMap<Vec<u8>, Vec<SeqId>> {
    let mut all: BTreeMap<Vec<u8>, Vec<SeqId>> = BTreeMap::new();
    for request in capture.requests.values() {
        // It can only run out of memory: every field can be encoded.
        let key = postcard::to_extend(&asked(request, redaction), Vec::new()).unwrap_or_default();
        all.entry(key).or_default().push(request.seq);
    }
    all
}

/// What of a request its output depends on, as far as a capture of this redaction tells.
fn asked(request: &RequestRecord, redaction: Redaction) -> RequestRecord {
    let mut own = RequestRecord {
        seq: SeqId(0),
        request_id: String::new(),
        cache_salt: String::new(),
        speculation: None,
        ..request.clone()
    };
    if own.sampling.temperature == 0.0 {
        own.sampling.seed = 0;
    }
    if redaction == Redaction::None {
        return own;
    }
    own.stop_strings.clear();
    own.tags.tools.clear();
    if own.constraint != ConstraintRecord::None {
        own.constraint = ConstraintRecord::Unknown;
    }
    if redaction == Redaction::Text {
        return own;
    }
    // Little is left to tell requests by, so that their ids have to.
    own.request_id.clone_from(&request.request_id);
    own.prompt.fill(TokenId(0));
    own.sampling.seed = 0;
    own.sampling.bias.clear();
    own.end_tokens.clear();
    if let Some((_, close)) = &mut own.reasoning {
        close.clear();
    }
    own
}

/// What was asked, by prompt.
fn others(capture: &Capture, redaction: Redaction) -> BTreeMap<Vec<TokenId>, Vec<RequestRecord>> {
    let mut all: BTreeMap<Vec<TokenId>, Vec<RequestRecord>> = BTreeMap::new();
    for request in capture.requests.values() {
        let asked = asked(request, redaction);
        all.entry(asked.prompt.clone()).or_default().push(asked);
    }
    all
}

/// What the nearest request of the other capture was asked otherwise.
fn why(own: &RequestRecord, others: &BTreeMap<Vec<TokenId>, Vec<RequestRecord>>) -> String {
    let same_prompt = others.get(&own.prompt).into_iter().flatten();
    let differing = same_prompt.map(|other| differing(own, other));
    match differing.min_by_key(Vec::len) {
        None => "the other has no request with its prompt".to_string(),
        Some(fields) if fields.is_empty() => "the other has fewer that were asked this".to_string(),
        Some(fields) => format!("the nearest differs in {}", fields.join(", ")),
    }
}

fn differing(own: &RequestRecord, other: &RequestRecord) -> Vec<&'static str> {
    let fields = [
        ("request_id", own.request_id != other.request_id),
        ("choice", own.choice != other.choice),
        ("sampling", own.sampling != other.sampling),
        ("max_tokens", own.max_tokens != other.max_tokens),
        ("end_tokens", own.end_tokens != other.end_tokens),
        ("stop_strings", own.stop_strings != other.stop_strings),
        ("tags", own.tags != other.tags),
        ("reasoning", own.reasoning != other.reasoning),
        ("constraint", own.constraint != other.constraint),
    ];
    let differing = fields.into_iter().filter(|own| own.1);
    differing.map(|own| own.0).collect()
}
