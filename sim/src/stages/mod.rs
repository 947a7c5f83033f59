//! Which stage is to blame: each stage is computed again, plainly, from what it really got in the run, and held
//! against what it said. A stage that was fed nonsense and did the right thing with it is innocent. The first
//! step at which one differs counts, and among those of one step the stage that comes first in the life of a
//! token.

mod asked;
mod chain;
mod heads;
mod masks;
mod outside;
mod plans;
mod requests;
mod rules;
mod suspect;
mod turns;
mod twin;

use crate::oracles::Judgement;
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_step::planted;

/// A stage that did not do what it should.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The stage.
    pub stage: Stage,
    /// In which of the server's lives.
    pub life: usize,
    /// In which step; none comes after all steps.
    pub step: Option<u64>,
    /// What it said, and what it should have said.
    pub what: String,
}

/// Recomputes one stage.
type Check = fn(&Run) -> Vec<Finding>;

/// All of them, in the order of a token's life.
const CHECKS: &[Check] = &[
    requests::check,
    plans::check,
    rules::check,
    masks::check,
    twin::check,
    chain::check,
];

/// Which of them looks at plans and drafts, and which asks the backend again.
const PLANS: usize = 1;
const TWIN: usize = 4;

/// All that differs, the first to blame first.
pub fn findings(run: &Run) -> Vec<Finding> {
    let before = planted::set(None);
    let checked = CHECKS.iter().enumerate();
    let mut all: Vec<(usize, Finding)> = checked
        .flat_map(|(order, check)| check(run).into_iter().map(move |finding| (order, finding)))
        .collect();
    all.sort_by_key(|(order, finding)| (finding.life, finding.step.unwrap_or(u64::MAX), *order));
    match all.first_mut() {
        Some((TWIN, first)) => first.stage = suspect::stage(run, first, before),
        Some((PLANS, first))
            if first.stage == Stage::Speculation && heads::are_others(&run.options, before) =>
        {
            first.stage = Stage::Package;
        }
        _ => {}
    }
    planted::set(before);
    all.into_iter().map(|(_, finding)| finding).collect()
}

/// The stage to blame: that of the first finding, or what the complaints of the oracles are about.
pub fn blame(run: &Run, found: &[Finding], judgement: &Judgement) -> Option<(Stage, String)> {
    if let Some(first) = found.first() {
        return Some((first.stage, first.what.clone()));
    }
    outside::blame(run, judgement)
}

/// The stage of code that panicked, by what it was about or else by its file.
pub fn of_panic(run: &Run, words: &str) -> Option<Stage> {
    let plans = words.contains("engine/core/src/engine/plan");
    let about = plans.then(|| plans::of_panic(run)).flatten();
    about.or_else(|| of_file(words))
}

fn of_file(path: &str) -> Option<Stage> {
    let of = [
        ("engine/tags/", Stage::Tags),
        ("engine/grammar/", Stage::Grammar),
        ("engine/core/src/mask_job", Stage::Grammar),
        ("engine/core/src/engine/masks", Stage::Grammar),
        ("engine/core/src/draft", Stage::Speculation),
        ("engine/core/src/output", Stage::Output),
        ("engine/core/src/prefix", Stage::Cache),
        ("engine/core/src/memory", Stage::Cache),
        ("engine/core/src/leases", Stage::Cache),
        ("engine/core/", Stage::Overlap),
        ("engine/server/", Stage::Output),
        ("backends/sampling/", Stage::Sampler),
        ("backends/", Stage::Kernel),
    ];
    let found = of.iter().find(|(prefix, _)| path.contains(prefix));
    found.map(|(_, stage)| *stage)
}
