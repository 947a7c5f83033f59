//! The server that a command is about: one that runs already, or one that is started here with the flags of
//! `lockstep serve`. It must never show the key.

use super::{endpoint::Endpoint, local::Local};
use crate::{
    exit::Failure,
    flags::{EngineArgs, MachineArgs, ModelArgs},
};
use serde_json::Value;
use std::time::Duration;

/// Which server.
#[derive(clap::Args, Clone, Debug)]
pub struct TargetArgs {
    /// A running server, as http://HOST:PORT/v1; without it one is started here.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The key that the server wants.
    #[arg(
        long,
        value_name = "KEY",
        env = "LOCKSTEP_API_KEY",
        hide_env_values = true
    )]
    pub api_key: Option<String>,
    /// The model's name in the API [default: the first that the server lists].
    #[arg(long, value_name = "NAME")]
    pub api_model: Option<String>,
    /// How long a server may say nothing before a request counts as failed.
    #[arg(long, value_name = "S", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_seconds: u64,
    #[command(flatten, next_help_heading = "Model, without --url")]
    model: ModelArgs,
    #[command(flatten, next_help_heading = "Machine, without --url")]
    machine: MachineArgs,
    #[command(flatten, next_help_heading = "Engine, without --url")]
    engine: EngineArgs,
}

/// A server that was found, or started.
pub struct Target {
    /// Where requests go.
    pub endpoint: Endpoint,
    /// The model's name in the API.
    pub model: String,
    /// The server, where it is one of this process.
    pub local: Option<Local>,
}

impl Target {
    /// Finds the server, or starts one.
    ///
    /// # Errors
    /// An address that is none, a server that can't be reached or lists no model, or whatever keeps one from
    /// starting.
    pub fn find(args: &TargetArgs) -> Result<Target, Failure> {
        let timeout = Duration::from_secs(args.timeout_seconds);
        let (url, key, local) = match &args.url {
            Some(url) => (url.clone(), args.api_key.as_deref(), None),
            None => {
                let local = Local::start(&args.model, &args.machine, &args.engine)?;
                (format!("http://{}/v1", local.address), None, Some(local))
            }
        };
        let endpoint = Endpoint::new(&url, key, timeout)
            .map_err(|error| Failure::usage(format!("--url: {error}"), ""))?;
        let unreachable = |what: String| {
            let next = "start a server with `lockstep serve`, or leave --url out";
            Failure::input(format!("{}: {what}", endpoint.url()), next)
        };
        let listed = match endpoint.get("/models") {
            Ok(models) => serde_json::from_str(&models).unwrap_or_default(),
            // A server may list nothing and serve the model that was named all the same.
            Err(fault) if args.api_model.is_some() && fault.code != "connect" => Value::Null,
            Err(fault) => return Err(unreachable(format!("{}: {}", fault.code, fault.message))),
        };
        let first = listed["data"][0]["id"].as_str();
        let model = args.api_model.as_deref().or(first);
        let model = model
            .ok_or_else(|| unreachable("it lists no model: --api-model names one".to_owned()))?;
        Ok(Target {
            model: model.to_owned(),
            endpoint,
            local,
        })
    }

    /// What answers, in words.
    pub fn about(&self) -> String {
        match &self.local {
            Some(local) => local.about.clone(),
            None => format!("{} at {}", self.model, self.endpoint.url()),
        }
    }

    /// Ends well only if a server of this process still runs.
    ///
    /// # Errors
    /// Why its engine stopped.
    pub fn still_runs(&self) -> Result<(), Failure> {
        match self.local.as_ref().and_then(Local::stopped) {
            Some(reason) => Err(Failure::failed(format!("the engine stopped: {reason}"))),
            None => Ok(()),
        }
    }
}
