//! The prefix cache finds what must be there, and nothing that can't be: a prompt that was just computed is
//! found again up to its last full block, a server without the cache finds nothing, and one token is always
//! left to compute.

use super::Bench;
use crate::options::Feature;
use crate::reference::Answers;
use crate::workload::AGAIN;
use crate::world::Run;
use lockstep_server::said::Answer;
use lockstep_step::BLOCK_LEN;

/// With so many rows a sequence that runs alone leaves the state at the end of its prompt's last full block, drafts or
/// not.
const ROWS_ENOUGH: u32 = 24;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    let has_cache = run.options.has(Feature::PrefixCache);
    // Where rows are short the state may be gone, and with it the blocks before it are of no use.
    let may_lack_rows = (1..ROWS_ENOUGH).contains(&run.options.limits.num_rows);
    let (mut num_again, mut is_answered) = (0, false);
    for exchange in &run.exchanges {
        let wish = &exchange.wish;
        let Some(Answer {
            usage: Some([prompt, ..]),
            cached: Some(cached),
            ..
        }) = exchange.told()
        else {
            continue;
        };
        let result = match () {
            () if !has_cache && cached > 0 => Err(format!("{cached} tokens found without a cache")),
            // An answer of nobody's doing has no usage.
            () if prompt > 0 && cached >= prompt => Err(format!("all {cached} tokens found")),
            () => Ok(()),
        };
        bench.check(Some(&wish.id), result);
        if !wish.id.starts_with(AGAIN) {
            continue;
        }
        num_again += 1;
        if num_again == 1 {
            is_answered = true;
            continue;
        }
        let block = u64::from(BLOCK_LEN);
        let all = prompt.saturating_sub(1) / block * block;
        let wanted = if has_cache { all } else { 0 };
        let is_right = cached == wanted || (may_lack_rows && cached < wanted);
        let what = || format!("{cached} of {prompt} tokens found again, wanted {wanted}");
        let result = if is_right { Ok(()) } else { Err(what()) };
        bench.check(Some(&wish.id), result);
    }
    if is_answered && num_again < 2 {
        bench.check(
            None,
            Err("the same prompt was not answered twice".to_owned()),
        );
    }
}
