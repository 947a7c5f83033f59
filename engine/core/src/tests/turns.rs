//! Turns an engine and a model in every order that is allowed: one step at a time, the next planned while one
//! runs, and changing between the two. Masks are filled in one go or as jobs that end in the wrong order; aborts
//! come before, between or after.

use super::prefixes::Oracle;
use super::*;
use alloc::collections::BTreeMap;
use lockstep_step::{Backend, BackendLimits, Proposal, StepPlan};

/// When the next step is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    Sync,
    Overlapped,
    /// Now so, now so.
    Switching,
}

/// An engine, a model, and the step between them.
pub(super) struct Turns<'a, B: Backend> {
    pub(super) engine: Engine,
    pub(super) backend: &'a mut B,
    pub(super) oracle: Oracle,
    pub(super) schedule: Schedule,
    /// What each sequence will say, for whoever is asked for drafts; every so many-th token is told wrong.
    pub(super) truths: BTreeMap<SeqId, Vec<TokenId>>,
    pub(super) wrong_every: usize,
    /// Whether the backend is asked in place of `truths`.
    pub(super) asks_backend: bool,
    pub(super) num_asked: u64,
    pub(super) num_proposed: u64,
    /// Planned ahead, and started.
    next: Option<(StepPlan, B::Forward)>,
    num_turns: u64,
}

impl<'a, B: Backend> Turns<'a, B> {
    pub(super) fn new(
        engine: Engine,
        backend: &'a mut B,
        oracle: Oracle,
        schedule: Schedule,
    ) -> Turns<'a, B> {
        Turns {
            engine,
            backend,
            oracle,
            schedule,
            truths: BTreeMap::new(),
            wrong_every: 4,
            asks_backend: false,
            num_asked: 0,
            num_proposed: 0,
            next: None,
            num_turns: 0,
        }
    }

    /// Runs a step to its end; aborts a sequence meanwhile. False if there was none.
    pub(super) fn turn(&mut self, abort: Option<SeqId>) -> bool {
        self.engine.set_models(ModelDrafters {
            mtp: true,
            draft_model: true,
        });
        self.num_turns += 1;
        let is_overlapped = match self.schedule {
            Schedule::Sync => false,
            Schedule::Overlapped => true,
            Schedule::Switching => !self.num_turns.is_multiple_of(3),
        };
        self.engine.set_overlap(is_overlapped);
        let Some((plan, forward)) = self.next.take().or_else(|| {
            let plan = self.plan()?;
            Some(self.start(plan))
        }) else {
            assert_eq!(self.engine.fault(), None);
            return false;
        };
        self.engine.check_invariants().expect("while a step runs");
        let moment = plan.step.0;
        let abort_at = |engine: &mut Engine, at: u64| {
            if let Some(seq) = abort.filter(|_| moment % 4 == at) {
                engine.abort(seq);
            }
        };
        abort_at(&mut self.engine, 0);
        let mut next = None;
        if moment % 3 == 0 {
            next = self.plan();
        }
        let masks = if moment % 5 == 0 {
            abort_at(&mut self.engine, 1);
            self.engine.fill_masks(&plan)
        } else {
            let jobs = self.engine.take_mask_jobs(&plan);
            abort_at(&mut self.engine, 1);
            // The matchers are away.
            if moment % 3 == 1 {
                next = self.plan();
            }
            let done = jobs.into_iter().rev().map(MaskJob::run).collect();
            self.engine.finish_masks(&plan, done)
        };
        abort_at(&mut self.engine, 2);
        self.engine.check_invariants().expect("while a step runs");
        let sampled = self.backend.draw(forward, &masks);
        let sampled = sampled.expect("the masks are right");
        // A step is started after the draws that it may refer to.
        let next = next.or_else(|| self.plan());
        self.next = next.map(|plan| self.start(plan));
        abort_at(&mut self.engine, 3);
        let output = self.backend.collect(sampled).expect("it was drawn");
        self.oracle.before_commit(&mut self.engine);
        let committed = self.engine.commit(Time(0), output);
        committed.expect("no invariant breaks");
        self.engine.check_invariants().expect("after a commit");
        self.oracle.committed(&mut self.engine, &plan);
        true
    }

    /// Plans the next step. None if there is none to plan now.
    fn plan(&mut self) -> Option<StepPlan> {
        self.propose();
        let plan = self.engine.plan(Time(0))?;
        self.oracle.planned(&mut self.engine, &plan);
        Some(plan)
    }

    fn start(&mut self, plan: StepPlan) -> (StepPlan, B::Forward) {
        let forward = self.backend.forward(&plan).expect("the plan is right");
        (plan, forward)
    }

    fn propose(&mut self) {
        let Some(questions) = self.engine.plan_proposals() else {
            return;
        };
        let limits: BackendLimits = self.backend.limits();
        lockstep_step::check_proposals(&questions, &limits).expect("the questions are right");
        self.num_asked += questions.seqs.len() as u64;
        if self.asks_backend {
            let proposals = self.backend.propose(&questions);
            return self.engine.take_proposals(proposals.expect("it drafts"));
        }
        let mut proposals = vec![];
        for asked in &questions.seqs {
            let told = self.oracle.told(asked.seq);
            let at = asked.start.0 as usize + asked.query.len();
            // It is asked about what is committed, and nothing else.
            let num_forced = at - told.len();
            assert_eq!(asked.query[0], told[asked.start.0 as usize]);
            assert_eq!(asked.query.len(), 1 + num_forced);
            assert!(asked.counts.is_empty() || asked.sampling.has_penalties());
            let num_output = at - self.oracle.prompt_len(asked.seq);
            let truth = self.truths.get(&asked.seq);
            let rest = truth.and_then(|truth| truth.get(num_output..));
            let rest = rest.unwrap_or(&[]).iter().take(asked.num_max as usize);
            let spoil = |(idx, &token): (usize, &TokenId)| match (at + idx) % self.wrong_every {
                0 => TokenId(token.0 + 1),
                _ => token,
            };
            let tokens: Vec<TokenId> = rest.enumerate().map(spoil).collect();
            self.num_proposed += tokens.len() as u64;
            // Some get no answer.
            if !at.is_multiple_of(7) {
                let seq = asked.seq;
                proposals.push(Proposal { seq, tokens });
            }
        }
        proposals.reverse();
        self.engine.take_proposals(proposals);
    }
}
