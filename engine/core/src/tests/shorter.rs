//! A step that is shorter than the acceptance before it: what a grammar's trimming makes of drafts, thousands of times.

use super::*;
use alloc::collections::BTreeMap;
use lockstep_step::{Backend, RowId};

/// A real deployment lost 30 of 72 tool calls to this: a kernel took the length of the current query for that of the
/// query before it when it looked for the state after the accepted drafts, so that a step which a grammar had
/// made shorter than the acceptance before it read no state at all. This backend does the same.
struct Forgetful {
    inner: Fingerprint,
    forgets: bool,
    /// Where the committed part of each sequence's last query ended.
    committed: BTreeMap<SeqId, u32>,
    num_shorter: u64,
}

impl Backend for Forgetful {
    type Forward = <Fingerprint as Backend>::Forward;
    type Sampled = lockstep_step::StepOutput;

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(
        &mut self,
        plan: &lockstep_step::StepPlan,
    ) -> Result<Self::Forward, lockstep_step::BackendError> {
        let mut plan = plan.clone();
        for seq in &mut plan.seqs {
            let num_committed = seq.query.len() as u32 - seq.num_drafts;
            let end = seq.start.0 + num_committed;
            let before = self.committed.insert(seq.seq, end).unwrap_or(0);
            let num_accepted = seq.start.0.saturating_sub(before);
            if before > 0 && (seq.query.len() as u32) < num_accepted + 1 {
                self.num_shorter += 1;
                let written = |row: &RowId| seq.rows.writes.iter().any(|write| write.row == *row);
                let other = (0..self.inner.limits().num_rows).map(RowId);
                let other = other.filter(|row| seq.rows.read != Some(*row));
                if self.forgets {
                    seq.rows.read = other.clone().find(|row| !written(row));
                }
            }
        }
        self.inner.forward(&plan)
    }

    fn draw(
        &mut self,
        forward: Self::Forward,
        masks: &lockstep_step::MaskSet,
    ) -> Result<Self::Sampled, lockstep_step::BackendError> {
        self.inner.draw(forward, masks)
    }

    fn collect(
        &mut self,
        sampled: Self::Sampled,
    ) -> Result<lockstep_step::StepOutput, lockstep_step::BackendError> {
        self.inner.collect(sampled)
    }
}

#[test]
fn a_step_shorter_than_the_acceptance_before_it_changes_nothing() {
    let prompts = |idx: u64| {
        let mut wanted = request(9 + (idx % 60) as u32, 100);
        wanted.sampling.temperature = 1.0;
        wanted.sampling.seed = idx;
        wanted
    };
    let run = |forgets: bool, truths: &[Vec<TokenId>], overlap: bool| {
        let config = EngineConfig {
            overlap,
            ..config()
        };
        let mut engine = engine(config, limits());
        let mut backend = Forgetful {
            inner: model(limits()),
            forgets,
            committed: BTreeMap::new(),
            num_shorter: 0,
        };
        let mut events = vec![];
        for idx in 0..120 {
            let seq = engine.submit(Time(0), prompts(idx)).expect("it fits");
            if let Some(truth) = truths.get(idx as usize) {
                let drafter = Drafter::Replay {
                    output: truth.clone(),
                    depths: vec![7, 0, 3, 1, 2],
                };
                engine.set_drafter(seq, drafter);
            }
            events.extend(run_to_end(&mut engine, &mut backend).expect("no invariant breaks"));
        }
        let outputs: Vec<Vec<TokenId>> = (0..120).map(|idx| tokens(&events, SeqId(idx))).collect();
        (outputs, backend.num_shorter, engine.stats().totals)
    };
    let (truths, none, _) = run(false, &[], false);
    assert_eq!(none, 0);
    for overlap in [false, true] {
        let (outputs, num_shorter, totals) = run(false, &truths, overlap);
        assert_eq!(outputs, truths);
        assert!(num_shorter >= 1000, "only {num_shorter} steps were shorter");
        assert!(totals.num_shorter_parts >= num_shorter);
        let (outputs, ..) = run(true, &truths, overlap);
        let wrong = outputs.iter().zip(&truths).filter(|(a, b)| a != b).count();
        assert!(wrong > 60, "only {wrong} outputs show the mistake");
    }
}
