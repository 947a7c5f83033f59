//! A backend that fails when it is told to, in each of its phases.

use lockstep_fingerprint::Fingerprint;
use lockstep_step::{
    Backend, BackendError, BackendLimits, MaskSet, ModelDrafter, Proposal, ProposalPlan,
    StepOutput, StepPlan,
};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Forward,
    Draw,
    Collect,
    Propose,
}

/// A model that is fine, behind a device that may not be.
pub struct Flaky {
    inner: Fingerprint,
    /// The next call of this phase fails.
    pub fails_next: Option<Phase>,
    /// Steps that have failed.
    pub num_failed: u64,
}

impl Flaky {
    /// A device that works so far.
    pub fn new(inner: Fingerprint) -> Flaky {
        Flaky {
            inner,
            fails_next: None,
            num_failed: 0,
        }
    }

    fn passes(&mut self, phase: Phase) -> Result<(), BackendError> {
        if self.fails_next != Some(phase) {
            return Ok(());
        }
        self.fails_next = None;
        self.num_failed += u64::from(phase != Phase::Propose);
        Err(BackendError::Device(format!("{phase:?} failed")))
    }
}

impl Backend for Flaky {
    type Forward = <Fingerprint as Backend>::Forward;
    type Sampled = <Fingerprint as Backend>::Sampled;

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        self.passes(Phase::Forward)?;
        self.inner.forward(plan)
    }

    fn draw(
        &mut self,
        forward: Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        self.passes(Phase::Draw)?;
        self.inner.draw(forward, masks)
    }

    fn collect(&mut self, sampled: Self::Sampled) -> Result<StepOutput, BackendError> {
        self.passes(Phase::Collect)?;
        self.inner.collect(sampled)
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.inner.has_drafter(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        self.passes(Phase::Propose)?;
        self.inner.propose(plan)
    }
}
