//! `lockstep masks`: what the grammar of a request allows after a given beginning of the answer, for people
//! who debug a schema, a template or a model. No model runs: only its vocabulary is needed.

use crate::{
    exit::{self, Failure},
    flags::ModelArgs,
    form::read,
    session::open_package,
    terminal::Paint,
};
use lockstep_package::{Package, Special};
use lockstep_server::{ReadRequest, RequestReader, ServerConfig};
use lockstep_step::{Bitmask, Matcher, TokenId};
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

const EXAMPLES: &str = "\
The request is the body of POST /v1/chat/completions. Its `model` is left out of account.

Examples:
  lockstep masks --request request.json
  lockstep masks --request request.json --prefix '</think><tool_call>'
  lockstep masks --request request.json --prefix '{\"city\":' --limit 50
  lockstep masks --request request.json --prefix-tokens 12,7,300 --json
  lockstep masks --request request.json --explain

Exit codes: 0 done, 1 the beginning is not allowed, 3 the request or the model can't be used.";

/// Shows what a request's grammar allows next
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MasksArgs {
    /// The body of a chat completion.
    #[arg(long, short = 'r', value_name = "FILE.json")]
    request: PathBuf,
    /// How the answer begins; tags that it spells out are meant as tokens.
    #[arg(long, value_name = "TEXT", conflicts_with = "prefix_tokens")]
    prefix: Option<String>,
    /// The same, as ids of tokens.
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',')]
    prefix_tokens: Vec<u32>,
    /// Allowed tokens to list.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Shows the grammars as text, too.
    #[arg(long)]
    explain: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
}

/// Forced tokens that are shown at most.
const FORCED_MAX: usize = 64;

/// Runs the command.
pub fn run(args: &MasksArgs) -> ExitCode {
    match masks(args) {
        Ok(Shown::Next) => ExitCode::SUCCESS,
        Ok(Shown::NotAllowed) => ExitCode::FAILURE,
        Err(failure) => exit::end(Err(failure)),
    }
}

/// What could be shown.
enum Shown {
    Next,
    /// The beginning itself is not allowed.
    NotAllowed,
}

fn masks(args: &MasksArgs) -> Result<Shown, Failure> {
    let path = args.request.display();
    let unusable = |what: &dyn std::fmt::Display| {
        let next = "expected the body of POST /v1/chat/completions, see docs/PROTOCOL.md";
        Failure::input(format!("{path}: {what}"), next)
    };
    let mut body: Value = serde_json::from_str(&read(&args.request)?).map_err(|e| unusable(&e))?;
    if let Some(fields) = body.as_object_mut() {
        fields.shift_remove("model");
    }
    let package = Arc::new(open_package(&args.model)?);
    let reader = RequestReader::new(ServerConfig::new(package.name.clone()), package.clone());
    let request = reader.chat(&body).map_err(|error| unusable(&error))?;
    let matcher = reader.matcher(&request).map_err(|error| unusable(&error))?;
    let grammars = match args.explain {
        true => reader.explain(&request).map_err(|error| unusable(&error))?,
        false => Vec::new(),
    };
    let prefix = prefix(args, &package)?;
    let Some(mut matcher) = matcher else {
        return print(
            args,
            &package,
            &request,
            &Next::free(&package, prefix),
            &grammars,
        );
    };
    for (idx, &token) in prefix.iter().enumerate() {
        if matcher.consume(token).is_err() {
            let begun = text(&package, &prefix[..idx]);
            let what = format!(
                "token {idx} of the beginning, {} {:?}, is not allowed after {begun:?}",
                token.0,
                text(&package, &[token]),
            );
            let next = "--prefix-tokens without it shows what is";
            Failure::input(what, next).report();
            return Ok(Shown::NotAllowed);
        }
    }
    let next = Next::of(&mut matcher, &package, prefix)?;
    print(args, &package, &request, &next, &grammars)
}

fn prefix(args: &MasksArgs, package: &Package) -> Result<Vec<TokenId>, Failure> {
    let ids = match &args.prefix {
        Some(text) => {
            let ids = package.tokenizer.encode(text, Special::Parse);
            ids.map_err(|error| Failure::input(error, ""))?
        }
        None => args.prefix_tokens.clone(),
    };
    let size = package.contract.vocab_size;
    if let Some(id) = ids.iter().find(|id| **id as usize >= size) {
        let what = format!("--prefix-tokens has {id}");
        return Err(Failure::usage(
            what,
            format!("ids are from 0 to {}", size.saturating_sub(1)),
        ));
    }
    Ok(ids.into_iter().map(TokenId).collect())
}

/// What may come next.
struct Next {
    prefix: Vec<TokenId>,
    allowed: Vec<TokenId>,
    may_end: bool,
    forced: Vec<TokenId>,
}

impl Next {
    /// After a beginning that the matcher has taken.
    fn of(
        matcher: &mut dyn Matcher,
        package: &Package,
        prefix: Vec<TokenId>,
    ) -> Result<Next, Failure> {
        let mut mask = Bitmask::none(vocab_size(package));
        let filled = matcher.fill(&mut mask);
        filled.map_err(|error| Failure::failed(format!("the mask can't be filled: {error}")))?;
        Ok(Next {
            prefix,
            allowed: ids(package).filter(|id| mask.allows(*id)).collect(),
            may_end: matcher.can_finish(),
            forced: matcher.forced(FORCED_MAX),
        })
    }

    /// Where nothing is held.
    fn free(package: &Package, prefix: Vec<TokenId>) -> Next {
        Next {
            prefix,
            allowed: ids(package).collect(),
            may_end: true,
            forced: Vec::new(),
        }
    }
}

fn vocab_size(package: &Package) -> u32 {
    u32::try_from(package.contract.vocab_size).unwrap_or(u32::MAX)
}

fn ids(package: &Package) -> impl Iterator<Item = TokenId> + use<> {
    (0..vocab_size(package)).map(TokenId)
}

fn text(package: &Package, tokens: &[TokenId]) -> String {
    let bytes = tokens
        .iter()
        .flat_map(|token| package.tokenizer.decode_token(token.0));
    String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
}

fn print(
    args: &MasksArgs,
    package: &Package,
    request: &ReadRequest,
    next: &Next,
    grammars: &[String],
) -> Result<Shown, Failure> {
    match args.json {
        true => println!("{:#}", as_json(args, package, request, next, grammars)),
        false => print_table(args, package, request, next, grammars),
    }
    Ok(Shown::Next)
}

fn as_json(
    args: &MasksArgs,
    package: &Package,
    request: &ReadRequest,
    next: &Next,
    grammars: &[String],
) -> Value {
    let one = |token: &TokenId| json!({"token": token.0, "text": text(package, &[*token])});
    let mut report = json!({
        "constraint": request.constraint_kinds(),
        "prefix_tokens": next.prefix,
        "num_allowed": next.allowed.len(),
        "vocab_size": package.contract.vocab_size,
        "may_end": next.may_end,
        "forced": {"text": text(package, &next.forced), "tokens": next.forced},
        "allowed": next.allowed.iter().take(args.limit).map(one).collect::<Vec<_>>(),
    });
    if args.explain {
        report["grammars"] = json!(grammars);
    }
    report
}

fn print_table(
    args: &MasksArgs,
    package: &Package,
    request: &ReadRequest,
    next: &Next,
    grammars: &[String],
) {
    let paint = Paint::stdout();
    let row = |name: &str, value: String| println!("{} {value}", paint.dim(&format!("{name:<11}")));
    let quoted =
        |tokens: &[TokenId]| format!("{} tokens, {:?}", tokens.len(), text(package, tokens));
    let kinds = request.constraint_kinds().join(", ");
    let (allowed, size) = (next.allowed.len(), package.contract.vocab_size);
    let none = "none: anything may be written".to_owned();
    row("constraint", if kinds.is_empty() { none } else { kinds });
    row("after", quoted(&next.prefix));
    row("allowed", format!("{allowed} of {size} tokens"));
    row(
        "may end",
        (if next.may_end { "yes" } else { "no" }).to_owned(),
    );
    row("forced", quoted(&next.forced));
    println!();
    for token in next.allowed.iter().take(args.limit) {
        println!("{:>8}  {:?}", token.0, text(package, &[*token]));
    }
    if allowed > args.limit {
        let more = format!("and {} more; --limit lists them", allowed - args.limit);
        println!("{}", paint.dim(&more));
    }
    for grammar in grammars {
        println!("\n{}\n{}", paint.dim("grammar"), grammar.trim_end());
    }
}
