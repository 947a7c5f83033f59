//! A run on paper, for whoever looks for the reason of a complaint.

use crate::client::Outcome;
use crate::world::Run;
use lockstep_core::EventKind;

/// Prints what clients got, and what each step was.
pub fn print(run: &Run) {
    for exchange in &run.exchanges {
        let (wish, sent, over) = (&exchange.wish, exchange.sent, exchange.over);
        println!(
            "{} {sent:?} to {over:?}: {:?} {}",
            wish.id, wish.manner, wish.body
        );
        match &exchange.outcome {
            Outcome::Response {
                status, body, end, ..
            } => {
                println!("  {status} {end:?} {}", String::from_utf8_lossy(body));
            }
            other => println!("  {other:?}"),
        }
    }
    for (idx, life) in run.lives.iter().enumerate() {
        let life = life.open();
        for (seq, submit) in &life.submits {
            let prompt = submit.prompt.len();
            println!(
                "life {idx} {seq:?}: {} choice {}, {prompt} tokens",
                submit.id, submit.choice
            );
        }
        for (id, step) in &life.steps {
            for (part_idx, part) in step.plan.seqs.iter().enumerate() {
                let output = step.output.as_ref().map(|output| {
                    output
                        .as_ref()
                        .map(|output| output.seqs[part_idx].draws.as_ref().map(Vec::len))
                });
                println!(
                    "life {idx} step {id} {:?}: {}..{} {} drafts {:?} {:?} {:?} draws {output:?}",
                    part.seq,
                    part.start.0,
                    part.end().0,
                    part.num_drafts,
                    part.query,
                    part.rows,
                    part.block_table,
                );
            }
        }
        for event in &life.events {
            if !matches!(event.kind, EventKind::Token { .. }) {
                println!(
                    "life {idx} {:?} at {}: {:?}",
                    event.seq, event.at, event.kind
                );
            }
        }
    }
}
