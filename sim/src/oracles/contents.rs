//! What a plan reads holds the tokens that it should, and what it writes is its own: by content, whatever comes of it.

use super::Bench;
use crate::reference::Answers;
use crate::reflection::reflection;
use crate::world::Run;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    for (idx, life) in run.lives.iter().enumerate() {
        let life = life.open();
        let seen = reflection(&life, &run.options);
        // A server that was asked nothing has nothing to look at.
        if let Some(mistake) = seen.mistakes.first() {
            bench.check(None, Err(format!("life {idx}: {}", mistake.what)));
        } else if seen.num_looked > 0 {
            bench.check(None, Ok(()));
        }
    }
}
