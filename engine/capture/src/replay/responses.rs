//! The bytes of responses against what their readers were told, one request after another.

use super::JudgeResponse;
use crate::capture::Capture;
use crate::record::{News, Text};
use crate::stage::{Divergence, Stage, Verdict};
use lockstep_step::SeqId;
use std::collections::BTreeMap;

/// Judges every response that is here to its end, and whose choices all ended.
pub(super) fn judge(capture: &Capture, response: &JudgeResponse<'_>, verdict: &mut Verdict) {
    let mut bodies: BTreeMap<&str, (Vec<u8>, u32, bool)> = BTreeMap::new();
    for stream in &capture.streams {
        let (body, num_ends, is_open) = bodies.entry(&stream.request_id).or_default();
        match &stream.bytes {
            Text::Plain(bytes) => body.extend(bytes),
            Text::Digest(..) => *is_open = true,
        }
        *num_ends += u32::from(stream.is_last);
    }
    for (id, (body, num_ends, is_left_out)) in &bodies {
        // An id that was given twice says nothing of which is which.
        if *num_ends != 1 || *is_left_out {
            continue;
        }
        let seqs = capture.seqs_of(id);
        let choices: Vec<Vec<&News>> = seqs
            .iter()
            .map(|seq| capture.events_of(*seq).map(|(_, news)| news).collect())
            .collect();
        let is_over = |news: &Vec<&News>| matches!(news.last(), Some(News::Finished(_)));
        let is_left = seqs.iter().any(|seq| capture.left.contains(seq));
        if is_left || !choices.iter().all(is_over) {
            continue;
        }
        let Some(judged) = response(body, &choices) else {
            continue;
        };
        let why = judged.as_ref().err().cloned().unwrap_or_default();
        verdict
            .of(Stage::Stream)
            .count(judged.is_ok(), || Divergence {
                seq: seqs.first().copied().unwrap_or(SeqId(0)),
                step: None,
                pos: None,
                expected: "what its reader was told".to_string(),
                found: why,
                near: None,
            });
    }
    let why = match capture.streams.is_empty() {
        true => "no bytes of responses are in the capture",
        false => "no response is here to its end with all of its text",
    };
    verdict.unobserved(Stage::Stream, why);
}
