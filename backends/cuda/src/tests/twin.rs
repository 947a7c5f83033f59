//! A backend that is two: each step runs on the CPU and on the device, and the two must answer alike.

use crate::testing::{open_device, set_seed};
use crate::{CudaBackend, CudaForward, CudaOptions, CudaSampled, WeightRule};
use lockstep_cpu::{CpuBackend, CpuForward, CpuOptions};
use lockstep_package::{NoProgress, Package};
use lockstep_step::{
    Backend, BackendError, BackendLimits, MaskSet, ModelDrafter, Proposal, ProposalPlan,
    StepOutput, StepPlan,
};
use std::path::Path;

pub(super) struct Twin {
    cpu: CpuBackend,
    pub(super) cuda: CudaBackend,
    /// Steps that were compared, and draws in them.
    pub(super) num_steps: usize,
    pub(super) num_draws: usize,
}

/// A tiny checkpoint of the fixtures, or the embedded model.
pub(super) fn open(name: &str) -> Package {
    if name == "embedded" {
        return Package::embedded().expect("the embedded model");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    Package::open(&folder.join(name), &NoProgress).expect("a fixture")
}

impl Twin {
    pub(super) fn new(package: &Package, draft: Option<&Package>, options: &CudaOptions) -> Twin {
        let on_cpu = CpuOptions {
            weights: match options.weights {
                WeightRule::F32 => lockstep_cpu::WeightRule::F32,
                WeightRule::Q8 => lockstep_cpu::WeightRule::Q8,
            },
            num_blocks: options.num_blocks,
            num_rows: options.num_rows,
            query_tokens_max: options.query_tokens_max,
            seq_len_max: options.seq_len_max,
            mtp: options.mtp,
            ..CpuOptions::default()
        };
        let device = open_device();
        Twin {
            cpu: CpuBackend::load_with_draft(package, draft, &on_cpu, &NoProgress)
                .expect("a model on the CPU"),
            cuda: CudaBackend::load(&device, (package, draft), options, &NoProgress)
                .expect("a model on the device"),
            num_steps: 0,
            num_draws: 0,
        }
    }
}

impl Backend for Twin {
    type Forward = (CpuForward, CudaForward);
    type Sampled = (StepOutput, CudaSampled);

    fn limits(&self) -> BackendLimits {
        assert_eq!(self.cpu.limits(), self.cuda.limits());
        self.cuda.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        // Another order of threads for each step.
        set_seed(plan.step.0 % 20);
        Ok((self.cpu.forward(plan)?, self.cuda.forward(plan)?))
    }

    fn draw(
        &mut self,
        (cpu, cuda): Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        Ok((self.cpu.draw(cpu, masks)?, self.cuda.draw(cuda, masks)?))
    }

    fn collect(&mut self, (cpu, cuda): Self::Sampled) -> Result<StepOutput, BackendError> {
        let (cpu, cuda) = (self.cpu.collect(cpu)?, self.cuda.collect(cuda)?);
        assert_eq!(cuda, cpu, "the device on the left, the CPU on the right");
        self.num_steps += 1;
        let draws = cpu.seqs.iter().filter_map(|seq| seq.draws.as_ref().ok());
        self.num_draws += draws.map(Vec::len).sum::<usize>();
        Ok(cpu)
    }

    fn is_asynchronous(&self) -> bool {
        self.cuda.is_asynchronous()
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.cuda.has_drafter(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        let (cpu, cuda) = (self.cpu.propose(plan)?, self.cuda.propose(plan)?);
        assert_eq!(cuda, cpu, "proposals of the device on the left");
        Ok(cpu)
    }
}
