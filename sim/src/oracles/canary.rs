//! A model that drafts for itself is always right, and nobody drafts who was not asked. No answer would show it if a
//! drafter fell behind: they only come later.

use super::Bench;
use crate::drafting::drafting;
use crate::reference::Answers;
use crate::world::Run;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    for (idx, life) in run.lives.iter().enumerate() {
        let drafted = drafting(&life.open(), &run.options);
        for _ in 0..drafted.num_right {
            bench.check(None, Ok(()));
        }
        for wrong in drafted.wrong {
            bench.check(None, Err(format!("life {idx}: {}", wrong.what)));
        }
    }
}
