//! A model in this process: package, backend, engine, and the loop that runs them. `chat`, `generate` and
//! `bench` share it; `serve` takes the first two and brings the server's own loop. It must never choose
//! anything that changes an answer: that is said by flags and by the package.

use crate::{
    backend::AnyBackend,
    cuda,
    exit::Failure,
    flags::{
        BackendKind, EngineArgs, MachineArgs, ModelArgs, OverlapKind, RejectedKind, ToolFormat,
    },
    terminal::Bars,
};
use lockstep_core::{
    Engine, EngineConfig, Event, Pipeline, RejectedDrafts, Request, Still, Time, Totals,
};
use lockstep_package::{ADVISORIES, Package};
use lockstep_step::{Backend, SamplingParams, SeqId};
use std::{path::Path, sync::Arc, time::Instant};

/// Opens what `--model` says, with a progress bar.
///
/// # Errors
/// Whatever is wrong with it, and what to try.
pub fn open_package(args: &ModelArgs) -> Result<Package, Failure> {
    let mut package = find_package(args)?;
    allow_advisories(&mut package, &args.allow_advisory)?;
    if let Some(ToolFormat::Given(format)) = args.tool_format {
        package.contract.tag_format = format;
    }
    Ok(package)
}

/// Overrides advisories that the user names, and refuses the package for one that nobody named.
fn allow_advisories(package: &mut Package, names: &[String]) -> Result<(), Failure> {
    let known = || ADVISORIES.iter().map(|advisory| advisory.name);
    if let Some(name) = names
        .iter()
        .find(|name| known().all(|known| known != **name))
    {
        let known = known().collect::<Vec<_>>().join(", ");
        let what = format!("--allow-advisory {name}: there is no such advisory");
        return Err(Failure::usage(what, format!("there are {known}")));
    }
    package.allow_advisories(names);
    for name in &package.allowed_advisories {
        eprintln!("{} goes on against the advisory {name}", package.name);
    }
    package.check_advisories().map_err(|error| {
        let next = format!(
            "`lockstep pack -m DIR` packs {} again; --allow-advisory NAME goes on all the same",
            package.name
        );
        Failure::input(error, next)
    })
}

fn find_package(args: &ModelArgs) -> Result<Package, Failure> {
    let bars = Bars::default();
    let Some(name) = &args.model else {
        return Package::embedded().map_err(|error| Failure::failed(error.to_string()));
    };
    let path = Path::new(name);
    if path.exists() {
        let next = "`lockstep inspect DIR --verify` looks at every file of it";
        return Package::open(path, &bars).map_err(|error| Failure::input(error, next));
    }
    if !is_hub_name(name) {
        return Err(Failure::input(
            format!("--model {name}: there is no such directory or package, and it is no org/name"),
            "give a directory with config.json, a package, or a name such as Qwen/Qwen3-0.6B",
        ));
    }
    let folder = crate::hub::fetch(name, args, &bars)?;
    Package::open(&folder, &bars).map_err(|error| {
        let next = format!("it was fetched to {}", folder.display());
        Failure::input(error, next)
    })
}

/// Whether a name can be a model of a hub: exactly one slash, and no part that means a folder.
fn is_hub_name(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    if name.ends_with(".safetensors") {
        // The path of a package that isn't there.
        return false;
    }
    let fine = |part: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
    };
    parts.len() == 2 && parts.iter().all(fine)
}

/// Prepares what computes the package's model, with a progress bar.
///
/// # Errors
/// Weights that can't be used, or flags that contradict the machine.
pub fn open_backend(
    package: &Package,
    machine: &MachineArgs,
    engine: &EngineArgs,
) -> Result<AnyBackend, Failure> {
    let bars = Bars::default();
    let device = match machine.backend {
        BackendKind::Fingerprint => return Ok(AnyBackend::fingerprint(package, machine, engine)),
        BackendKind::Cpu => None,
        BackendKind::Cuda => Some(cuda::open(&machine.cuda)?),
        BackendKind::Auto => cuda::open_if_any(&machine.cuda),
    };
    let draft = engine.drafters.draft_model.as_deref();
    if draft.is_none() && engine.speculate.draft_model > 0 {
        return Err(Failure::usage(
            "--speculate names draft_model, and there is none",
            "say which with --draft-model DIR",
        ));
    }
    let allowed = &package.allowed_advisories;
    let draft = draft
        .map(|path| open_draft(path, allowed, &bars))
        .transpose()?;
    let models = (package, draft.as_ref());
    match device {
        Some(device) => AnyBackend::cuda(&device, models, machine, engine, &bars),
        None => AnyBackend::cpu(models, machine, engine, &bars),
    }
}

fn open_draft(path: &Path, allowed: &[String], bars: &Bars) -> Result<Package, Failure> {
    let mut draft = Package::open(path, bars).map_err(|error| {
        let next = "give --draft-model a directory with config.json, or a package";
        Failure::input(format!("--draft-model: {error}"), next)
    })?;
    draft.allow_advisories(allowed);
    Ok(draft)
}

/// What the flags say of an engine over this backend.
pub fn engine_config(args: &EngineArgs, backend: &AnyBackend) -> EngineConfig {
    EngineConfig {
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens,
        chunk_tokens_max: args.max_num_batched_tokens,
        speculation: args.speculate,
        prefix_cache: !args.no_prefix_cache,
        overlap: match args.overlap {
            OverlapKind::Auto => backend.is_asynchronous(),
            OverlapKind::On => true,
            OverlapKind::Off => false,
        },
        rejected_drafts: match args.rejected_drafts {
            RejectedKind::Trim => RejectedDrafts::Trim,
            RejectedKind::Pad => RejectedDrafts::Pad,
        },
        checked: args.checked,
        ..EngineConfig::default()
    }
}

/// A package's own way to sample.
pub fn sampling_defaults(package: &Package) -> SamplingParams {
    let own = package.contract.sampling;
    SamplingParams {
        temperature: own.temperature as f32,
        top_k: u32::try_from(own.top_k).unwrap_or(u32::MAX),
        top_p: own.top_p as f32,
        min_p: own.min_p as f32,
        repetition_penalty: own.repetition_penalty as f32,
        ..SamplingParams::greedy()
    }
}

/// A seed from the system, for requests that bring none. Small enough that every JSON reader keeps it.
///
/// # Errors
/// If the system has no randomness to give.
pub fn draw_seed() -> Result<u64, Failure> {
    let seed = getrandom::u64().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(seed >> 11)
}

/// An engine over a backend.
fn engine(
    config: EngineConfig,
    package: &Package,
    backend: &AnyBackend,
) -> Result<Engine, Failure> {
    let vocabulary = Arc::new(lockstep_server::vocabulary(package));
    Engine::new(config, backend.limits(), vocabulary)
        .map_err(|error| Failure::usage(error, "change the flags named there"))
}

/// All that a server is made of, but for its own settings.
pub struct Served {
    /// What it is served from; it has a tokenizer.
    pub package: Package,
    /// The engine, with nothing to do.
    pub engine: Engine,
    /// What computes.
    pub backend: AnyBackend,
    /// What computes, in words.
    pub about: String,
    /// What the engine was told.
    pub config: EngineConfig,
}

impl Served {
    /// Opens everything that the flags name; `adjust` has the last word on the engine's limits.
    ///
    /// # Errors
    /// As [`open_package`] and [`open_backend`]; a model without a tokenizer, and flags that the engine can't
    /// run with.
    pub fn open(
        model: &ModelArgs,
        machine: &MachineArgs,
        engine_args: &EngineArgs,
        adjust: impl FnOnce(&mut EngineConfig),
    ) -> Result<Served, Failure> {
        let package = open_package(model)?;
        if !package.tokenizer.is_present() {
            let what = format!(
                "{} has no tokenizer.json, so it can't be served",
                package.name
            );
            let next = "add the tokenizer.json that belongs to the model";
            return Err(Failure::input(what, next));
        }
        let backend = open_backend(&package, machine, engine_args)?;
        let mut config = engine_config(engine_args, &backend);
        adjust(&mut config);
        let engine = engine(config, &package, &backend)?;
        let about = format!(
            "{} ({} weights, {} threads, {})",
            package.name,
            machine.weights.name(),
            machine.num_threads(),
            backend.describe(),
        );
        Ok(Served {
            package,
            engine,
            backend,
            about,
            config,
        })
    }
}

/// A model, ready to answer.
pub struct Session {
    /// What it is served from.
    pub package: Arc<Package>,
    engine: Engine,
    backend: AnyBackend,
    pipeline: Pipeline<AnyBackend>,
    start: Instant,
}

impl Session {
    /// Opens everything that the flags name.
    ///
    /// # Errors
    /// As [`open_package`] and [`open_backend`].
    pub fn open(
        model: &ModelArgs,
        machine: &MachineArgs,
        engine: &EngineArgs,
    ) -> Result<Session, Failure> {
        let package = open_package(model)?;
        let backend = open_backend(&package, machine, engine)?;
        Session::new(package, backend, engine)
    }

    /// Puts the parts together.
    ///
    /// # Errors
    /// Flags that the engine can't run with.
    pub fn new(
        package: impl Into<Arc<Package>>,
        backend: AnyBackend,
        args: &EngineArgs,
    ) -> Result<Session, Failure> {
        let package = package.into();
        let config = engine_config(args, &backend);
        Ok(Session {
            engine: engine(config, &package, &backend)?,
            package,
            backend,
            pipeline: Pipeline::default(),
            start: Instant::now(),
        })
    }

    /// Gives the package back, for another backend.
    pub fn into_package(self) -> Arc<Package> {
        self.package
    }

    fn now(&self) -> Time {
        // Half a million years fit into it.
        Time(self.start.elapsed().as_micros() as u64)
    }

    /// Takes a request.
    ///
    /// # Errors
    /// Why it can't be taken.
    pub fn submit(&mut self, request: Request) -> Result<SeqId, Failure> {
        let now = self.now();
        let next = "shorten the prompt, or raise --max-model-len or --kv-cache-gib";
        self.engine
            .submit(now, request)
            .map_err(|refusal| Failure::input(refusal, next))
    }

    /// Ends a sequence early; its events say so.
    pub fn abort(&mut self, seq: SeqId) {
        self.engine.abort(seq);
    }

    /// Computes one step. False if nothing is left to do.
    ///
    /// # Errors
    /// A fault of the engine. A backend's failure is an event of each sequence that it met.
    pub fn step(&mut self) -> Result<bool, Failure> {
        let mut host = Still(self.now());
        self.pipeline
            .turn(&mut self.engine, &mut self.backend, &mut host)
            .map_err(|fault| Failure::failed(fault.to_string()))
    }

    /// What the engine has done so far.
    pub fn totals(&self) -> Totals {
        self.engine.stats().totals
    }

    /// News since the last call.
    pub fn poll_events(&mut self) -> Vec<Event> {
        self.engine.poll_events()
    }

    /// Runs until nothing is left to do, handing each piece of news to `on_event`.
    ///
    /// # Errors
    /// As [`Session::step`], or as `on_event`.
    pub fn run(
        &mut self,
        mut on_event: impl FnMut(&mut Session, &Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            let worked = self.step()?;
            let events = self.poll_events();
            if !worked && events.is_empty() {
                return Ok(());
            }
            for event in &events {
                on_event(self, event)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_hub_name;

    #[test]
    fn names_of_a_hub() {
        for name in [
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            "a/b",
            "Qwen/Qwen3-0.6B",
        ] {
            assert!(is_hub_name(name), "{name}");
        }
        for name in [
            "./model",
            "../a",
            "a/b.safetensors",
            "a/b/c",
            "/a",
            "a/",
            "model",
            "a/..",
            "a b/c",
            "",
        ] {
            assert!(!is_hub_name(name), "{name}");
        }
    }
}
