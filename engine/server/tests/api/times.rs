//! Where a request's time goes, as the metrics say it: a step that takes long is no time in the queue.

use crate::harness::*;
use lockstep_fingerprint::Fingerprint;
use lockstep_step::{Backend, BackendError, BackendLimits, MaskSet, StepOutput, StepPlan};
use serde_json::json;
use std::time::Duration;

/// A backend each of whose steps takes at least this long.
struct Slow(Fingerprint, Duration);

impl Backend for Slow {
    type Forward = <Fingerprint as Backend>::Forward;
    type Sampled = <Fingerprint as Backend>::Sampled;

    fn limits(&self) -> BackendLimits {
        self.0.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        std::thread::sleep(self.1);
        self.0.forward(plan)
    }

    fn draw(
        &mut self,
        forward: Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        self.0.draw(forward, masks)
    }

    fn collect(&mut self, sampled: Self::Sampled) -> Result<StepOutput, BackendError> {
        self.0.collect(sampled)
    }
}

#[tokio::test]
async fn a_prompt_is_read_from_the_beginning_of_its_step() {
    for overlap in [false, true] {
        let mut setup = Setup::new();
        setup.engine.overlap = overlap;
        let step = Duration::from_millis(20);
        let server = {
            let backend = Slow(Fingerprint::new(setup.backend.clone()), step);
            setup.start_with(backend)
        };
        let body = with(&hello(), json!({"max_tokens": 3, "ignore_eos": true}));
        let answer = server.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200);
        let seconds = |name: &str| server.metric(&format!("vllm:{name}_seconds_sum"));
        let prefill = seconds("request_prefill_time");
        assert!(prefill >= step.as_secs_f64(), "{prefill} s");
        // Of the same three moments, up to the rounding of the sum.
        let parts = prefill + seconds("request_queue_time");
        assert!((seconds("time_to_first_token") - parts).abs() < 1e-6);
    }
}
