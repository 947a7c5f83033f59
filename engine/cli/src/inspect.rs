//! `lockstep inspect`: what a model is, and whether it is sound.
//!
//! Without `--verify` only headers and small files are read, so that it answers at once for any
//! size. It must never end with success for a package that has a problem, nor where something was to
//! be verified and could not be.

use crate::exit::{Exit, Failure, end};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockstep_package::{
    Architecture, LayerType, NoProgress, Package, PackedReport, Progress, Report, SamplingRanges,
    SourceVerdict,
};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows what a model is and checks it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep inspect                      the model that is part of the program
  lockstep inspect models/smollm2-135m  a Hugging Face folder
  lockstep inspect DIR --verify         read every weight, hash every file
  lockstep inspect FILE --verify        a package: recompute every hash that it has of itself
  lockstep inspect FILE --verify --source DIR  and those of what it was packed from
  lockstep inspect DIR --json | jq .contract

Exit codes: 0 sound as far as was asked, 1 a problem, 3 it can't be opened, or --verify could
not check all of it (--source has the source of a package checked).")]
pub struct InspectArgs {
    /// A Hugging Face folder or a package; the embedded model when left out.
    pub path: Option<PathBuf>,
    /// The same, as other commands have it.
    #[arg(long, short = 'm', value_name = "DIR|FILE", conflicts_with = "path")]
    pub model: Option<PathBuf>,
    /// Write all of it as JSON.
    #[arg(long)]
    pub json: bool,
    /// Read every weight and hash every file.
    #[arg(long)]
    pub verify: bool,
    /// The folder that a package was packed from, to be verified too.
    #[arg(long, value_name = "DIR", requires = "verify")]
    pub source: Option<PathBuf>,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
}

/// Runs the command: success for a sound package, a failed check for one with problems, and an input that can't be
/// used for one that can't be opened, or not be verified in full.
pub fn run(args: &InspectArgs) -> ExitCode {
    let report = match report(args) {
        Ok(report) => report,
        Err(message) => {
            let next = "give a Hugging Face directory or a package; nothing for the embedded model";
            return end(Err(Failure::input(message, next)));
        }
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(|error| error.to_string()),
        false => Ok(text(&report, args.tensors, std::io::stdout().is_terminal())),
    };
    match text {
        // A reader that has seen enough, such as `head`, is no problem of the package.
        Ok(text) => drop(writeln!(std::io::stdout(), "{}", text.trim_end())),
        Err(message) => return end(Err(Failure::failed(message))),
    }
    match (report.problems.is_empty(), report.unchecked.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(Exit::Input as u8),
        (false, _) => ExitCode::FAILURE,
    }
}

fn report(args: &InspectArgs) -> Result<Report, String> {
    let package = match args.path.as_ref().or(args.model.as_ref()) {
        Some(path) => Package::open(path, &NoProgress),
        None => Package::embedded(),
    };
    let package = package.map_err(|error| error.to_string())?;
    if args.source.is_some() && package.packed.is_none() {
        return Err("--source is for packages: a folder is its own source".to_owned());
    }
    let mut report = Report::of(&package).map_err(|error| error.to_string())?;
    if args.verify {
        let bar = Bar {
            bar: RefCell::new(ProgressBar::hidden()),
        };
        report
            .verify(&package, &bar)
            .and_then(|()| report.verify_sources(&package, args.source.as_deref(), &bar))
            .map_err(|error| error.to_string())?;
    }
    Ok(report)
}

/// A progress bar of bytes on standard error; hidden when that isn't a terminal.
struct Bar {
    bar: RefCell<ProgressBar>,
}

impl Progress for Bar {
    fn begin(&self, what: &str, total: u64) {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let template = "{msg:16} {wide_bar} {bytes}/{total_bytes} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_string());
        self.bar.replace(bar);
    }

    fn advance(&self, by: u64) {
        self.bar.borrow().inc(by);
    }

    fn end(&self) {
        self.bar.borrow().finish_and_clear();
    }
}

/// Text in columns, with headings in bold on a terminal.
struct Page {
    out: String,
    terminal: bool,
}

impl Page {
    fn heading(&mut self, heading: &str) {
        let (bold, plain) = if self.terminal {
            ("\x1b[1m", "\x1b[0m")
        } else {
            ("", "")
        };
        let gap = if self.out.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.out, "{gap}{bold}{heading}{plain}");
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.out, "  {name:<18} {value}");
    }
}

fn text(report: &Report, tensors: bool, terminal: bool) -> String {
    let mut page = Page {
        out: String::new(),
        terminal,
    };
    model(&mut page, report);
    drafts(&mut page, report);
    contract(&mut page, report);
    files(&mut page, report);
    if let Some(package) = &report.package {
        packed(&mut page, package);
    }
    if tensors {
        page.heading("Tensors");
        for tensor in &report.tensors {
            let unused = if tensor.used { "" } else { "  unused" };
            let _ = writeln!(
                page.out,
                "  {:<5} {:<16} {}{unused}",
                tensor.dtype,
                format!("{:?}", tensor.shape),
                tensor.name
            );
        }
    }
    let unused: Vec<&str> = report.unused().map(|tensor| tensor.name.as_str()).collect();
    if !unused.is_empty() && !tensors {
        page.heading("Unused tensors");
        for name in unused.iter().take(8) {
            let _ = writeln!(page.out, "  {name}");
        }
        if unused.len() > 8 {
            let _ = writeln!(
                page.out,
                "  and {} more (--tensors lists them)",
                unused.len() - 8
            );
        }
    }
    verdict(&mut page, report);
    page.out
}

fn model(page: &mut Page, report: &Report) {
    let config = &report.config;
    page.heading(&report.name);
    let architecture = match config.architecture {
        Architecture::Llama => "Llama",
        Architecture::Qwen3 => "Qwen3",
        Architecture::Qwen3_5 => "Qwen3.5",
    };
    page.line("architecture", architecture);
    page.line("parameters", thousands(report.parameters));
    let is_full = |layer: &&LayerType| **layer == LayerType::FullAttention;
    let full = config.layer_types.iter().filter(is_full).count();
    let layers = match config.num_layers - full {
        0 => format!("{full}"),
        linear => format!(
            "{} ({linear} gated delta net, {full} full attention)",
            config.num_layers
        ),
    };
    page.line("layers", layers);
    page.line(
        "hidden, MLP",
        format!("{}, {}", config.hidden_size, config.intermediate_size),
    );
    page.line(
        "heads",
        format!(
            "{} query, {} key and value, {} dimensions each",
            config.num_attention_heads, config.num_key_value_heads, config.head_dim
        ),
    );
    page.line(
        "context",
        format!("{} tokens", thousands(report.contract.max_len as u64)),
    );
    let tied = if config.tie_word_embeddings {
        "tied embeddings"
    } else {
        "own output head"
    };
    page.line(
        "vocabulary",
        format!("{}, {tied}", thousands(config.vocab_size as u64)),
    );
    for (dtype, figures) in &report.dtypes {
        let size = bytes(figures.bytes);
        page.line(
            "weights",
            format!("{} tensors of {dtype}, {size}", figures.tensors),
        );
    }
    match &report.tokenizer {
        Some(tokenizer) => page.line(
            "tokenizer",
            format!(
                "{} tokens, {} added by hand, {} of them never shown",
                thousands(tokenizer.vocab_size as u64),
                tokenizer.added_tokens,
                tokenizer.special_tokens
            ),
        ),
        None => page.line("tokenizer", "none: it can be computed with, not served"),
    }
    match &report.template {
        Some(template) => {
            page.line(
                "chat template",
                format!("{} ({})", template.file, template.names.join(", ")),
            );
            page.line("", format!("sha256 {}", template.sha256));
        }
        None => page.line("chat template", "none: plain completions only"),
    }
}

/// The head that drafts, where the checkpoint brings one.
fn drafts(page: &mut Page, report: &Report) {
    if report.mtp_parameters > 0 {
        let size = thousands(report.mtp_parameters);
        page.line("drafts", format!("own head of {size} parameters (mtp)"));
    }
}

fn contract(page: &mut Page, report: &Report) {
    let contract = &report.contract;
    page.heading("Contract");
    let ends: Vec<String> = contract.end_tokens.iter().map(u32::to_string).collect();
    page.line(
        "ends at tokens",
        if ends.is_empty() {
            "none".to_string()
        } else {
            ends.join(", ")
        },
    );
    let sampling = &contract.sampling;
    let defaults = match sampling.temperature {
        0.0 => "greedy".to_string(),
        temperature => format!(
            "temperature {temperature}, top_p {}, top_k {}, min_p {}",
            sampling.top_p, sampling.top_k, sampling.min_p
        ),
    };
    page.line("samples", defaults);
    let tags = contract
        .tag_format
        .map_or("none known", lockstep_package::TagFormat::as_str);
    ranges(page, &contract.ranges);
    for (name, ids) in [
        ("not in prompts", &contract.refused_in_prompts),
        ("never drawn", &contract.refused_in_output),
    ] {
        if !ids.is_empty() {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            page.line(name, format!("tokens {}", ids.join(", ")));
        }
    }
    page.line("tool calls", tags);
    page.line(
        "reasons",
        if contract.reasoning.is_some() {
            "yes"
        } else {
            "no"
        },
    );
}

fn ranges(page: &mut Page, ranges: &SamplingRanges) {
    let top_k = ranges
        .top_k
        .map(|(least, most)| (f64::from(least), f64::from(most)));
    for (name, range) in [
        ("temperature", ranges.temperature),
        ("top_p", ranges.top_p),
        ("top_k", top_k),
        ("min_p", ranges.min_p),
        ("repetition_penalty", ranges.repetition_penalty),
    ] {
        if let Some((least, most)) = range {
            page.line("allows", format!("{name} from {least} to {most}"));
        }
    }
}

/// What a package says of where it came from.
fn packed(page: &mut Page, package: &PackedReport) {
    page.heading("Packed");
    let packer = &package.packer;
    page.line(
        "by",
        format!("lockstep {}, packer {}", packer.version, packer.revision),
    );
    page.line("digest", &package.digest);
    if !package.left_out.is_empty() {
        let count = package.left_out.len();
        page.line(
            "left out",
            format!("{count} tensors that the architecture doesn't need"),
        );
    }
    for advisory in &package.advisories {
        page.line("advisory", format!("{}: {}", advisory.name, advisory.what));
        page.line("", &advisory.next);
    }
    page.heading("Source files");
    for file in &package.sources {
        let verdict = match file.verdict {
            None => "",
            Some(SourceVerdict::Same) => "  same",
            Some(SourceVerdict::Changed) => "  changed",
            Some(SourceVerdict::Gone) => "  gone",
            Some(SourceVerdict::Unchecked) => "  could not be checked",
        };
        let carried = if file.source.carried {
            "  carried along"
        } else {
            ""
        };
        page.line(
            &bytes(file.source.size),
            format!("{}{carried}{verdict}", file.source.name),
        );
        page.line("", format!("sha256   {}", file.source.hashes.sha256));
        page.line("", format!("git blob {}", file.source.hashes.git_blob));
    }
}

fn files(page: &mut Page, report: &Report) {
    page.heading("Files");
    for file in &report.files {
        page.line(&bytes(file.size), &file.name);
        if let Some(hashes) = &file.hashes {
            page.line("", format!("sha256   {}", hashes.sha256));
            page.line("", format!("git blob {}", hashes.git_blob));
        }
    }
}

fn verdict(page: &mut Page, report: &Report) {
    page.heading("Verdict");
    for problem in &report.problems {
        let _ = writeln!(page.out, "  problem: {problem}");
    }
    for what in &report.unchecked {
        let _ = writeln!(page.out, "  could not be checked: {what}");
    }
    let verdict = match (report.problems.len(), report.verified) {
        (0, true) if !report.unchecked.is_empty() => {
            "no problem seen, but not all could be checked (--source DIR has the source checked)"
        }
        (0, true) => "sound: every tensor is there, every value was read, every file was hashed",
        (0, false) => "no problem seen; values were not read (--verify reads them)",
        _ => "not sound",
    };
    let _ = writeln!(page.out, "  {verdict}");
}

/// A number with its thousands apart.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size in the unit that reads best.
fn bytes(size: u64) -> String {
    match size {
        0..10_000 => format!("{size} B"),
        10_000..10_000_000 => format!("{:.1} kB", size as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", size as f64 / 1e6),
        _ => format!("{:.1} GB", size as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn of(package: &Package) -> Report {
        Report::of(package).expect("readable")
    }

    #[test]
    fn the_embedded_model_reads_well() {
        let package = Package::embedded().expect("it is part of the program");
        let text = text(&of(&package), false, false);
        for line in [
            "  architecture       Qwen3.5\n",
            "  parameters         4,055,920\n",
            "  layers             8 (6 gated delta net, 2 full attention)\n",
            "  vocabulary         2,048, tied embeddings\n",
            "  samples            greedy\n",
            "  tool calls         glm\n",
            "  drafts             own head of 529,472 parameters (mtp)\n",
            "  no problem seen; values were not read (--verify reads them)\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains('\x1b'), "no colours where nobody looks");
        assert!(
            !text.contains("Unused"),
            "the drafting head is used: {text}"
        );
    }

    #[test]
    fn problems_make_it_unsound() {
        let package = Package::embedded().expect("it is part of the program");
        let mut report = of(&package);
        report.problems.push("tensor x is gone".to_string());
        let text = text(&report, true, false);
        assert!(
            text.contains("  problem: tensor x is gone\n  not sound\n"),
            "{text}"
        );
        assert!(
            text.contains("  BF16  [192]            mtp.norm.weight\n"),
            "{text}"
        );
        let missing = InspectArgs {
            path: Some(PathBuf::from("/nowhere/at/all")),
            model: None,
            json: false,
            verify: false,
            source: None,
            tensors: false,
        };
        assert!(super::report(&missing).is_err_and(|error| error.contains("/nowhere/at/all")));
        assert_eq!(run(&missing), ExitCode::from(Exit::Input as u8));
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(
            [0, 999, 1000, 4_055_920].map(thousands),
            ["0", "999", "1,000", "4,055,920"]
        );
        assert_eq!(
            [90, 91_007, 538_090_448].map(bytes),
            ["90 B", "91.0 kB", "538.1 MB"]
        );
    }
}
