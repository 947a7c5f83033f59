//! `lockstep selftest`: whether a device gives the bits of the reference on this machine. It needs no file beside the
//! program. It must never end well where it compared nothing.

use crate::{
    cuda,
    exit::{self, Failure},
    flags::CudaArgs,
    law::{self, Sample, Tried},
};
use lockstep_cuda::Device;
use serde_json::json;
use std::{process::ExitCode, time::Instant};

const EXAMPLES: &str = "\
Runs deployments of two small models that are part of the program on the device, with everything
switched on that may not change a byte, and compares every request with what the CPU says to it
alone: text, tokens, log-probabilities, and the digest of the logits of every token. The last line
is the verdict.

Examples:
  lockstep selftest --backend cuda
  lockstep selftest --backend cuda --deployments 1000 --seed 7
  lockstep selftest --backend cuda -m ./SmolLM2-135M-Instruct --deployments 20
  lockstep selftest --backend cuda --json

Exit codes: 0 nothing differs, 1 something does, 2 wrong command line, 3 there is no such device or
model, 4 the device failed.";

/// What is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tested {
    /// A GPU, by CUDA.
    Cuda,
}

/// Tests a device on this machine against the CPU.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SelftestArgs {
    /// What is tested.
    #[arg(long, value_enum, default_value_t = Tested::Cuda)]
    backend: Tested,
    /// Deployments to try.
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..))]
    deployments: u32,
    /// Another seed draws others.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// embedded, llama, or a Hugging Face directory or package; may be repeated [default: the first two].
    #[arg(long = "model", short = 'm', value_name = "NAME|DIR")]
    models: Vec<String>,
    /// The device.
    #[command(flatten)]
    cuda: CudaArgs,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &SelftestArgs) -> ExitCode {
    match selftest(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => exit::end(Err(failure)),
    }
}

fn selftest(args: &SelftestArgs) -> Result<bool, Failure> {
    let start = Instant::now();
    let Tested::Cuda = args.backend;
    let device = cuda::open(&args.cuda)?;
    let models = match args.models.is_empty() {
        true => ["embedded", "llama"].map(str::to_owned).to_vec(),
        false => args.models.clone(),
    };
    let tried = law::sample(
        &device,
        &Sample {
            models,
            num_deployments: args.deployments as usize,
            seed: args.seed,
        },
    )?;
    let good = tried.mismatches.is_empty() && tried.num_tokens > 0 && tried.num_accepted > 0;
    if args.json {
        println!("{:#}", as_json(&device, &tried, good));
        return Ok(good);
    }
    for mismatch in &tried.mismatches {
        eprintln!("mismatch {mismatch}");
    }
    if tried.num_tokens == 0 || tried.num_accepted == 0 {
        eprintln!("too little was tried to say anything: give more --deployments");
    }
    println!(
        "{} ({}): {} runs in {} steps, {} tokens with their digests, {} drafts accepted, {} s",
        device.name(),
        device.architecture(),
        tried.num_runs,
        tried.num_steps,
        tried.num_tokens,
        tried.num_accepted,
        start.elapsed().as_secs(),
    );
    println!("{} mismatches", tried.mismatches.len());
    Ok(good)
}

fn as_json(device: &Device, tried: &Tried, good: bool) -> serde_json::Value {
    json!({
        "device": device.name(),
        "architecture": device.architecture(),
        "runs": tried.num_runs,
        "steps": tried.num_steps,
        "tokens": tried.num_tokens,
        "accepted": tried.num_accepted,
        "mismatches": tried.mismatches,
        "good": good,
    })
}
