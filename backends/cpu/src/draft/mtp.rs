//! Drafts of the checkpoint's own head, one token of every sequence at a time: each entry follows on what
//! the head itself made of the one before, but for the first, which follows on the model.

use crate::batch::{Batch, Machine};
use crate::model::{Before, Model, Mtp, MtpMemory};
use lockstep_numerics::sampler::Sampler;
use lockstep_sampling::Asked;
use lockstep_step::{SeqPlan, StepLayout, TokenId};

/// Draws what is wanted of each. All sequences go through the head together.
pub(super) fn propose<'a>(
    machine: Machine<'_>,
    (model, mtp): (&Model, &Mtp),
    (memory, layout): (&mut MtpMemory, &mut StepLayout),
    sampler: &mut Sampler,
    mut asked: Vec<Asked<'a>>,
) -> Vec<Asked<'a>> {
    let (hidden, vocab_size) = (model.hidden(), model.vocab_size());
    let mut seqs: Vec<SeqPlan> = asked
        .iter()
        .map(|asked| asked.part(asked.ask().start, 1, true))
        .collect();
    let (mut done, mut before, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    let mut logits = Vec::new();
    for round in 0.. {
        if asked.is_empty() {
            break;
        }
        let tokens: Vec<TokenId> = asked.iter().map(|asked| asked.token(round)).collect();
        layout.lay_out(&seqs, &tokens);
        let batch = Batch::new(layout);
        let follows = match round {
            0 => Before::Kept,
            _ => Before::Own(&before),
        };
        mtp.forward(machine, model, &batch, (&[], follows), memory, &mut outputs);
        let rows = outputs.chunks_exact(hidden);
        let drawing = asked
            .iter()
            .zip(rows)
            .filter(|(asked, _)| asked.drafts(round));
        let drawing: Vec<f32> = drawing.flat_map(|(_, row)| row).copied().collect();
        let num_drawing = drawing.len() / hidden;
        logits.resize(num_drawing * vocab_size, 0.0);
        model.logits(machine, &drawing, num_drawing, &mut logits);
        let mut logits = logits.chunks_exact(vocab_size);
        before.clear();
        let going_on = std::mem::take(&mut asked)
            .into_iter()
            .zip(std::mem::take(&mut seqs));
        for ((mut one, mut seq), output) in going_on.zip(outputs.chunks_exact(hidden)) {
            if one.drafts(round)
                && let Some(logits) = logits.next()
            {
                one.draws.draw(sampler, logits);
            }
            if one.draws.is_over() {
                done.push(one);
                continue;
            }
            seq.start.0 += 1;
            before.extend_from_slice(output);
            asked.push(one);
            seqs.push(seq);
        }
    }
    done
}
