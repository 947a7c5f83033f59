//! The backend again: a fresh one, without padding and drafters, is given the very plans and masks of the run,
//! one step after another. Where its logits differ the kernels are to blame, where only a draw differs the
//! sampler.

use super::Finding;
use crate::life::Life;
use crate::model::ToyModel;
use crate::options::{Computes, Feature, Options};
use crate::verdict::Stage;
use crate::world::{Run, computer};
use lockstep_step::{Backend, SeqOutput};

pub(super) fn check(run: &Run) -> Vec<Finding> {
    let options = plainly(&run.options);
    let lives = run.lives.iter().enumerate();
    let found = lives.map(|(idx, book)| {
        let life = book.open();
        match options.computes() {
            Computes::Fingerprint => {
                let hashes = ToyModel::new(options.format).hashes(options.limits, vec![], false);
                again(hashes, idx, &life)
            }
            Computes::Embedded => again(computer(&options), idx, &life),
        }
    });
    found.flatten().collect()
}

/// The same blocks and rows, and nothing that may not matter.
pub(super) fn plainly(options: &Options) -> Options {
    let mut plain = options.clone();
    plain.drafters.clear();
    plain
        .features
        .retain(|feature| *feature != Feature::StaticBuffers);
    plain
}

/// The first difference, if there is one: after it both have other blocks and rows.
fn again<B: Backend>(mut twin: B, idx: usize, life: &Life) -> Option<Finding> {
    for (id, step) in &life.steps {
        let finding = |stage, what| Finding {
            stage,
            life: idx,
            step: Some(id.0),
            what,
        };
        let forward = match twin.forward(&step.plan) {
            Ok(forward) => forward,
            // It is the plan that is wrong.
            Err(_) => return None,
        };
        let Some(masks) = &step.masks else {
            continue;
        };
        let answer = twin
            .draw(forward, masks)
            .and_then(|sampled| twin.collect(sampled));
        let (Ok(answer), Some(Ok(output))) = (answer, &step.output) else {
            continue;
        };
        for (own, told) in answer.seqs.iter().zip(&output.seqs) {
            if let Some((stage, what)) = differ(own, told) {
                return Some(finding(
                    stage,
                    format!("{:?} in step {id}: {what}", told.seq),
                ));
            }
        }
    }
    None
}

pub(super) fn differ(own: &SeqOutput, told: &SeqOutput) -> Option<(Stage, String)> {
    let (Ok(wanted), Ok(draws)) = (&own.draws, &told.draws) else {
        let is_same = own.draws.is_err() && told.draws.is_err();
        let what = || format!("{:?}, wanted {:?}", told.draws, own.draws);
        return (!is_same).then(|| (Stage::Kernel, what()));
    };
    for (idx, (wanted, draw)) in wanted.iter().zip(draws).enumerate() {
        if wanted.digest != draw.digest {
            return Some((
                Stage::Kernel,
                format!("other logits at scored position {idx}"),
            ));
        }
        if wanted != draw {
            return Some((Stage::Sampler, format!("drew {draw:?}, wanted {wanted:?}")));
        }
    }
    let (wanted, draws) = (wanted.len(), draws.len());
    let what = || format!("{draws} draws, wanted {wanted}");
    (wanted != draws).then(|| (Stage::Sampler, what()))
}
