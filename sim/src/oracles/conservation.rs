//! Blocks, rows, leases and matchers add up after every turn of the engine's loop, and at the end all of them
//! can be had.

use super::Bench;
use crate::options::Feature;
use crate::reference::Answers;
use crate::world::Run;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    let is_lost = run.options.has(Feature::DeviceLost);
    for (idx, life) in run.lives.iter().enumerate() {
        let life = life.open();
        let excused = |what: &str| is_lost && what.contains("device is lost");
        let mut broken = life.broken.iter().filter(|what| !excused(what));
        let result = match broken.next() {
            Some(what) => Err(format!("life {idx}: {what}")),
            None => Ok(()),
        };
        bench.check(None, result);
        if idx + 1 < run.lives.len() {
            continue;
        }
        let stats = &life.stats;
        let all = (
            stats.num_blocks_free,
            stats.num_rows_free,
            stats.num_running,
            stats.num_waiting,
        );
        let wanted = (stats.num_blocks, stats.num_rows, 0, 0);
        bench.check(
            None,
            match all == wanted {
                true => Ok(()),
                false => Err(format!(
                    "at the end {all:?} of {wanted:?}: free blocks, free rows, running, waiting"
                )),
            },
        );
    }
}
