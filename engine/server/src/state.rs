//! What a server is made of: its settings, its limits, and the handles that requests share.
//!
//! Settings are fixed when the server starts; nothing here may change an answer afterwards.

use crate::captures::Captures;
use crate::driver::{Driver, Input, Status};
use crate::grammars::Grammars;
use crate::http::router;
use crate::mask_workers::MaskWorkers;
use crate::metrics::Metrics;
use crate::model::{ChatModel, ModelContract, SamplingRanges};
use crate::net::{Closing, mpsc, oneshot};
use crate::observer::{Nobody, Observer};
use crate::time::{Clock, timeout};
use lockstep_core::{Engine, ModelDrafters, Pipeline};
use lockstep_step::{Backend, BackendLimits};
use std::sync::Arc;
use std::time::Duration;

/// What happens to a sampling parameter outside the package's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingPolicy {
    /// The nearest value inside is used, and the response says so.
    Clamp,
    /// The request is refused.
    Refuse,
}

/// When a tool call is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryPolicy {
    /// As it is written where a grammar holds it, and else once it has parsed: no broken call is ever seen.
    Auto,
    /// As it is written: a call that breaks off was partly seen.
    Eager,
    /// Once it has parsed.
    Whole,
}

/// When tool calls are held to a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolGrammar {
    /// Where a request asks for what needs one.
    Asked,
    /// Wherever tools may be called.
    Always,
}

/// What a request may at most be, in countable units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// How long a client may take to send the body.
    pub body_read_timeout: Duration,
    /// Connections served at the same time; others wait to be accepted.
    pub connections_max: usize,
    /// Choices of one request (`n`).
    pub n_max: u32,
    /// Prompts of one completion request.
    pub prompts_max: usize,
    /// Stop strings of one request.
    pub stop_strings_max: usize,
    /// Bytes of one stop string.
    pub stop_string_bytes_max: usize,
    /// Bytes of a cache salt, at most.
    pub cache_salt_bytes_max: usize,
    /// Tools of one request.
    pub tools_max: usize,
    /// Biased tokens of one request.
    pub bias_max: usize,
    /// Bytes that may wait for a slow reader of a stream before it is cut off.
    pub stream_buffer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes_max: 16 << 20,
            body_read_timeout: Duration::from_secs(60),
            connections_max: 1024,
            n_max: 16,
            prompts_max: 64,
            stop_strings_max: 16,
            stop_string_bytes_max: 512,
            cache_salt_bytes_max: 512,
            tools_max: 256,
            bias_max: 1024,
            stream_buffer_bytes_max: 1 << 20,
        }
    }
}

/// A server's settings.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The names under which the model is served, the main one first; at least one.
    pub model_names: Vec<String>,
    /// What a request may at most be.
    pub limits: Limits,
    /// When a tool call is delivered.
    pub delivery: DeliveryPolicy,
    /// When tool calls are held to a grammar.
    pub tool_grammar: ToolGrammar,
    /// What happens to sampling parameters outside the range.
    pub sampling_policy: SamplingPolicy,
    /// Ranges in place of the package's own.
    pub ranges: Option<SamplingRanges>,
    /// Keys of which a client must show one; without any, everybody is served.
    pub api_keys: Vec<String>,
    /// The most tokens of an answer where the request doesn't say; None is as many as fit.
    pub default_max_tokens: Option<u32>,
    /// What a refused client is told to wait, in seconds.
    pub retry_after_s: u32,
    /// A stream that has nothing to say sends a comment this often.
    pub keep_alive: Duration,
    /// Threads that fill the masks of constrained sequences while the forward pass runs; 0 fills them
    /// after it. They change speed and never an answer.
    pub mask_threads: usize,
    /// What records, and gives captures out.
    pub captures: Option<Captures>,
    /// A pause after each step, which stands for a model's time in simulations and tests.
    pub step_pause: Option<Duration>,
}

impl ServerConfig {
    /// The default settings for a model of this name.
    pub fn new(model_name: impl Into<String>) -> ServerConfig {
        ServerConfig {
            model_names: vec![model_name.into()],
            limits: Limits::default(),
            delivery: DeliveryPolicy::Auto,
            tool_grammar: ToolGrammar::Asked,
            sampling_policy: SamplingPolicy::Clamp,
            ranges: None,
            api_keys: Vec::new(),
            default_max_tokens: None,
            retry_after_s: 1,
            keep_alive: Duration::from_secs(15),
            mask_threads: 2,
            captures: None,
            step_pause: None,
        }
    }
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) contract: ModelContract,
    pub(crate) grammars: Grammars,
    /// The backend's limits, with the longest sequence that the engine can hold.
    pub(crate) backend: BackendLimits,
    /// Models that can be asked for drafts, where the backend is known.
    pub(crate) models: Option<ModelDrafters>,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) status: Arc<Status>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) created: u64,
    closing: Closing,
}

impl Shared {
    /// What requests are read with where no engine will answer them.
    pub(crate) fn without_engine(config: ServerConfig, model: Arc<dyn ChatModel>) -> Shared {
        let contract = model.contract();
        let limits = BackendLimits {
            vocab_size: contract.vocab_size,
            num_blocks: 0,
            num_rows: 0,
            seq_len_max: u32::MAX,
            query_tokens_max: 0,
        };
        let name = config.model_names.first().cloned().unwrap_or_default();
        let (inputs, _) = mpsc::unbounded_channel();
        Shared {
            grammars: Grammars::new(&model, &contract),
            metrics: Arc::new(Metrics::new(&name, &limits)),
            config,
            model,
            contract,
            backend: limits,
            models: None,
            inputs,
            status: Arc::new(Status::default()),
            created: 0,
            closing: Closing::default(),
        }
    }

    /// The name that responses carry.
    pub(crate) fn model_name(&self) -> &str {
        self.config.model_names.first().map_or("", String::as_str)
    }

    pub(crate) fn ranges(&self) -> SamplingRanges {
        self.config.ranges.unwrap_or(self.contract.ranges)
    }
}

/// A running server, without a network. Give it connections with [`serve`](crate::serve) or
/// [`serve_connection`](crate::serve_connection).
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    router: axum::Router,
}

impl Server {
    /// Starts the engine's loop.
    ///
    /// # Errors
    /// If the system gives no thread for it.
    pub fn new<B>(
        config: ServerConfig,
        model: Arc<dyn ChatModel>,
        engine: Engine,
        backend: B,
    ) -> std::io::Result<Server>
    where
        B: Backend + Send + 'static,
        B::Forward: Send,
    {
        Server::observed(config, model, engine, backend, Box::new(Nobody))
    }

    /// The same, with everything recorded.
    ///
    /// # Errors
    /// As [`new`](Server::new).
    pub fn recorded<B>(
        mut config: ServerConfig,
        model: Arc<dyn ChatModel>,
        engine: Engine,
        backend: B,
        captures: Captures,
    ) -> std::io::Result<Server>
    where
        B: Backend + Send + 'static,
        B::Forward: Send,
    {
        let recorder = captures.recorder.clone();
        let mut backend = recorder.around(backend);
        if captures.with_ops && !backend.watch_ops(true) {
            tracing::warn!("this backend has no digests of operations: none are recorded");
        }
        config.captures = Some(captures);
        Server::observed(config, model, engine, backend, Box::new(recorder))
    }

    /// The same, with somebody who watches the engine's loop.
    ///
    /// # Errors
    /// As [`new`](Server::new).
    pub fn observed<B>(
        config: ServerConfig,
        model: Arc<dyn ChatModel>,
        engine: Engine,
        backend: B,
        observer: Box<dyn Observer>,
    ) -> std::io::Result<Server>
    where
        B: Backend + Send + 'static,
        B::Forward: Send,
    {
        let (inputs, input_receiver) = mpsc::unbounded_channel();
        let contract = model.contract();
        let limits = BackendLimits {
            seq_len_max: engine.seq_len_max(),
            ..backend.limits()
        };
        let models = ModelDrafters::of(&backend);
        let status = Arc::new(Status::default());
        let name = config.model_names.first().cloned().unwrap_or_default();
        let metrics = Arc::new(Metrics::new(&name, &limits));
        let clock = Clock::start();
        let driver = Driver {
            engine,
            backend,
            inputs: input_receiver,
            input_sender: inputs.downgrade(),
            clock,
            step_pause: config.step_pause,
            status: status.clone(),
            metrics: metrics.clone(),
            masks: MaskWorkers::new(config.mask_threads, clock)?,
            pipeline: Pipeline::default(),
            observer,
            step_started: lockstep_core::Time::default(),
        };
        crate::net::spawn_engine(driver.run())?;
        let shared = Arc::new(Shared {
            config,
            grammars: Grammars::new(&model, &contract),
            model,
            contract,
            backend: limits,
            models: Some(models),
            inputs,
            status,
            metrics,
            created: crate::time::unix_seconds(),
            closing: Closing::default(),
        });
        let router = router::router(shared.clone());
        Ok(Server { shared, router })
    }

    /// What controls it.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: self.shared.clone(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    pub(crate) fn router(&self) -> axum::Router {
        self.router.clone()
    }
}

/// Controls a running server.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Arc<Shared>,
}

impl ServerHandle {
    /// Ends the server in order: it is no longer ready and takes no new work, finishes what runs
    /// within `grace`, ends the rest with an error, and then closes. Returns whether everything
    /// was finished in time.
    pub async fn drain(&self, grace: Duration) -> bool {
        let (reply, idle) = oneshot::channel();
        self.shared.status.begin_drain();
        let sent = self.shared.inputs.send(Input::Drain { reply }).is_ok();
        let in_time = sent && matches!(timeout(grace, idle).await, Ok(Ok(())));
        let _ = self.shared.inputs.send(Input::Stop);
        self.shared.closing.close();
        in_time
    }

    /// Why the engine stopped, if it has.
    pub fn stopped(&self) -> Option<String> {
        self.shared.status.stopped()
    }

    /// The metrics in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.shared.metrics.render()
    }

    pub(crate) fn closing(&self) -> &Closing {
        &self.shared.closing
    }
}
