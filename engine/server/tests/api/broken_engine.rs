//! An engine that finds itself broken, or whose thread dies: every request ends with an error, and
//! the server says that it is not alive.

use crate::harness::*;
use lockstep_fingerprint::Fingerprint;
use lockstep_server::automaton::{check_chat_stream, check_message_stream};
use lockstep_step::{Backend, BackendError, BackendLimits, MaskSet, StepOutput, StepPlan};
use serde_json::json;

/// What the backend does wrong, at a step.
#[derive(Clone, Copy)]
enum Wrong {
    /// It leaves out a sequence of its answer.
    ForgetsASequence,
    /// It panics.
    Panics,
}

struct Broken {
    inner: Fingerprint,
    wrong: Wrong,
    at_step: u64,
}

impl Backend for Broken {
    type Forward = (u64, <Fingerprint as Backend>::Forward);
    type Sampled = (u64, <Fingerprint as Backend>::Sampled);

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        Ok((plan.step.0, self.inner.forward(plan)?))
    }

    fn draw(
        &mut self,
        (step, forward): Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        Ok((step, self.inner.draw(forward, masks)?))
    }

    fn collect(&mut self, (step, sampled): Self::Sampled) -> Result<StepOutput, BackendError> {
        let mut output = self.inner.collect(sampled)?;
        if step == self.at_step {
            match self.wrong {
                Wrong::ForgetsASequence => drop(output.seqs.pop()),
                Wrong::Panics => panic!("a kernel that died, as a test wants it"),
            }
        }
        Ok(output)
    }
}

#[tokio::test]
async fn a_broken_engine_stops_and_says_so() {
    for wrong in [Wrong::ForgetsASequence, Wrong::Panics] {
        let setup = Setup::new();
        let backend = Broken {
            inner: Fingerprint::new(setup.backend.clone()),
            wrong,
            at_step: 20,
        };
        let server = setup.start_with(backend);
        let body = with(&hello(), json!({"stream": true, "ignore_eos": true}));
        let chat = server.send(post("/v1/chat/completions", &body)).await;
        let body = with(&body, json!({"max_tokens": 1000}));
        let message = server.post("/v1/messages", &body).await;
        let chat = read(chat).await;
        assert_eq!(check_chat_stream(&chat.bytes, 1), Ok(()));
        assert_eq!(fold_chat(&chat.bytes)["error"]["code"], "engine_stopped");
        // The second one was either running, or came too late.
        match message.status {
            200 => assert_eq!(check_message_stream(&message.bytes), Ok(())),
            status => assert_eq!(status, 503),
        }
        let late = server.post("/v1/chat/completions", &hello()).await;
        assert_eq!(late.status, 503);
        assert_eq!(late.json()["error"]["code"], "engine_stopped");
        assert_eq!(server.get("/health").await.status, 503);
        assert_eq!(server.get("/ready").await.status, 503);
    }
}
