//! `lockstep pack`: a model as one file. What goes into it is decided by `lockstep-package`; here flags are read, and
//! the file is opened again as every other command will open it. It must never replace a file that it was not told to.

use crate::exit::{Failure, end};
use crate::flags::ModelArgs;
use crate::session;
use crate::terminal::{Bars, Paint};
use clap::Args;
use lockstep_package::{PackOptions, PackSummary, Package, Packer};
use serde_json::{Map, Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes a model as one file, its weights quantised.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lockstep pack -m models/smollm2-135m -o smollm2.safetensors
  lockstep serve -m smollm2.safetensors
  lockstep inspect smollm2.safetensors --verify --source models/smollm2-135m
  lockstep pack -m ORG/NAME -o name.safetensors --contract contract.json
  lockstep pack -o embedded.safetensors --json | jq .digest

The file answers with the same bytes as the folder does under --weights q8. The same folder gives
the same file, byte by byte. docs/packages.md says what is in it.")]
pub struct PackArgs {
    /// The file to write.
    #[arg(long, short = 'o', value_name = "FILE.safetensors")]
    out: PathBuf,
    /// Replace the file if there is one.
    #[arg(long)]
    force: bool,
    /// What the model is called [default: as the folder is].
    #[arg(long)]
    name: Option<String>,
    /// Fields of the contract that replace what the model's files say: end_tokens, sampling, ranges, tag_format,
    /// refused_in_prompts, refused_in_output, as JSON.
    #[arg(long, value_name = "FILE.json")]
    contract: Option<PathBuf>,
    /// Write what was written as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
}

/// Runs the command.
pub fn run(args: &PackArgs) -> ExitCode {
    end(pack(args))
}

fn pack(args: &PackArgs) -> Result<(), Failure> {
    let out = args.out.display();
    if args.out.exists() && !args.force {
        let what = format!("{out}: there is such a file already");
        return Err(Failure::usage(what, "give another one, or --force"));
    }
    let contract = args.contract.as_deref().map(read_contract).transpose()?;
    let package = session::open_package(&args.model)?;
    let options = PackOptions {
        name: args.name.clone(),
        contract,
    };
    let bars = Bars::default();
    let summary = package.pack(&args.out, &options, &bars).map_err(|error| {
        let next = "`lockstep inspect --verify` looks at every tensor of the source";
        Failure::input(error, next)
    })?;
    let again = Package::open(&args.out, &bars);
    let again = again.map_err(|error| Failure::failed(format!("what was written: {error}")))?;
    let text = match args.json {
        true => json!({
            "path": args.out,
            "name": again.name,
            "packer": Packer::this(),
            "size": summary.size,
            "digest": summary.digest,
            "quantised": summary.quantised,
            "stored": summary.stored,
            "left_out": summary.left_out,
            "carried": summary.carried,
        })
        .to_string(),
        false => words(&args.out, &again.name, &summary),
    };
    // A reader that has seen enough is no failure.
    drop(writeln!(std::io::stdout(), "{text}"));
    Ok(())
}

fn read_contract(path: &Path) -> Result<(PathBuf, Map<String, Value>), Failure> {
    let text = crate::form::read(path)?;
    let wrong = |error: String| {
        let next = "expected an object such as {\"ranges\": {\"temperature\": [0, 1]}}";
        Failure::input(format!("{}: {error}", path.display()), next)
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(changes)) => Ok((path.to_path_buf(), changes)),
        Ok(_) => Err(wrong("no JSON object".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn words(path: &Path, name: &str, summary: &PackSummary) -> String {
    let paint = Paint::stdout();
    let left_out = match summary.left_out {
        0 => String::new(),
        count => format!(", {count} left out that the architecture doesn't need"),
    };
    format!(
        "{} {:.1} MB, {name}\n  {} matrices quantised, {} tensors as they were{left_out}; \
         {} files carried\n  digest {}",
        paint.bold(&path.display().to_string()),
        summary.size as f64 / 1e6,
        summary.quantised,
        summary.stored,
        summary.carried,
        summary.digest
    )
}
