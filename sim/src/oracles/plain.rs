//! Each answer, whole or cut short, is that of a fresh, single, plain, uncached run; and where it is an error instead,
//! something happened that explains exactly this error for exactly this request.

use super::Bench;
use crate::client::{BodyEnd, Exchange, Outcome};
use crate::options::Feature;
use crate::reference::{Answers, key};
use crate::world::Run;
use lockstep_core::Refusal;
use lockstep_server::said::{Answer, Said};

pub(super) fn judge(run: &Run, answers: &Answers, bench: &mut Bench<'_>) {
    for exchange in &run.exchanges {
        let Outcome::Response {
            status, body, end, ..
        } = &exchange.outcome
        else {
            continue;
        };
        let wish = &exchange.wish;
        let is_whole = *end == BodyEnd::Complete;
        let streams = wish.is_stream() && *status == 200;
        if !streams && !is_whole {
            continue;
        }
        let told = match streams {
            true => Answer::stream(wish.route, body),
            false => Answer::whole(wish.route, *status, body),
        };
        let result = match (told, answers.get(&key(wish))) {
            (Err(what), _) => Err(what),
            (_, None) => Err("there is no plain answer".to_owned()),
            (_, Some(Err(what))) => Err(format!("the plain run: {what}")),
            (Ok(told), Some(Ok(wanted))) => {
                compare(run, exchange, &told, wanted, (streams, is_whole))
            }
        };
        bench.check(Some(&wish.id), result);
    }
}

fn compare(
    run: &Run,
    exchange: &Exchange,
    told: &Answer,
    wanted: &Answer,
    (streams, is_whole): (bool, bool),
) -> Result<(), String> {
    if let Some(code) = &told.refused {
        if wanted.refused.as_ref() == Some(code) {
            return Ok(());
        }
        let mut failed = wanted.choices.iter().filter_map(|said| said.error.as_ref());
        if failed.any(|wanted| wanted == code) && !streams {
            return Ok(());
        }
        return explain(run, exchange, code);
    }
    if wanted.refused.is_some() {
        return Err(format!("told {told:?}, wanted {:?}", wanted.refused));
    }
    for (idx, wanted) in wanted.choices.iter().enumerate() {
        let none = Said::default();
        let told = told.choices.get(idx).unwrap_or(&none);
        choice(run, exchange, told, wanted, streams, is_whole)
            .map_err(|what| format!("choice {idx}: {what}"))?;
    }
    if told.choices.len() > wanted.choices.len() {
        return Err(format!(
            "{} choices, wanted {}",
            told.choices.len(),
            wanted.choices.len()
        ));
    }
    let failed = told.choices.iter().any(|said| said.error.is_some());
    match (told.usage, wanted.usage) {
        (Some(told), Some(wanted)) if told != wanted && !failed => {
            Err(format!("usage is {told:?}, wanted {wanted:?}"))
        }
        _ => Ok(()),
    }
}

fn choice(
    run: &Run,
    exchange: &Exchange,
    told: &Said,
    wanted: &Said,
    streams: bool,
    is_whole: bool,
) -> Result<(), String> {
    let differ = || Err(format!("told {told:?}, wanted {wanted:?}"));
    if let Some(code) = &told.error
        && wanted.error.as_ref() != Some(code)
    {
        explain(run, exchange, code)?;
        return if begins(told, wanted) {
            Ok(())
        } else {
            differ()
        };
    }
    if !is_whole || told.finish.is_none() {
        let ok = begins(told, wanted) && (!is_whole || told.finish.is_some());
        return if ok { Ok(()) } else { differ() };
    }
    let mut wanted = wanted.clone();
    // A call that was cut off is part of a stream, and no part of a whole answer.
    if !streams && wanted.calls.len() > told.calls.len() {
        wanted.calls.truncate(told.calls.len());
        let was_cut = matches!(wanted.finish.as_deref(), Some("length" | "max_tokens"));
        if !was_cut {
            return differ();
        }
    }
    if !streams {
        // A whole message has its input as an object, a stream as text: blanks differ.
        wanted.calls = wanted.calls.into_iter().map(compact).collect();
        let told = Said {
            calls: told.calls.iter().cloned().map(compact).collect(),
            ..told.clone()
        };
        return if told == wanted { Ok(()) } else { differ() };
    }
    if *told == wanted { Ok(()) } else { differ() }
}

fn compact((name, arguments): (String, String)) -> (String, String) {
    let parsed = serde_json::from_str::<serde_json::Value>(&arguments);
    (name, parsed.map_or(arguments, |value| value.to_string()))
}

/// Whether what was told is the beginning of what was wanted.
fn begins(told: &Said, wanted: &Said) -> bool {
    let calls = told.calls.len();
    let whole = calls.saturating_sub(1);
    wanted.reasoning.starts_with(&told.reasoning)
        && wanted.content.starts_with(&told.content)
        && wanted.calls.len() >= calls
        && told.calls[..whole] == wanted.calls[..whole]
        && told.calls.last().is_none_or(|(name, arguments)| {
            let wanted = &wanted.calls[whole];
            // The last one may have been made compact before it was cut.
            wanted.0 == *name && strip(&wanted.1).starts_with(&strip(arguments))
        })
        && wanted.logprobs.starts_with(&told.logprobs)
}

fn strip(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Whether something that happened explains an error that a plain run doesn't have.
fn explain(run: &Run, exchange: &Exchange, code: &str) -> Result<(), String> {
    let (options, id) = (&run.options, &exchange.wish.id);
    let has = |features: &[Feature]| features.iter().any(|feature| options.has(*feature));
    let explained = match code {
        "queue_full" => run.lives.iter().any(|life| {
            let full = |refusal: &Refusal| matches!(refusal, Refusal::QueueFull { .. });
            life.open()
                .refused
                .iter()
                .any(|(own, refusal)| own == id && full(refusal))
        }),
        "never_fits" => has(&[Feature::ShortQueue]),
        "shutting_down" => has(&[Feature::Drain]),
        "engine_stopped" => has(&[Feature::DeviceLost, Feature::Kill, Feature::Drain]),
        "step_failed" => run
            .lives
            .iter()
            .any(|life| life.open().failed_a_step_of(id)),
        // In such runs little may wait for a reader: a burst of several choices is more, whoever reads.
        "slow_reader" => has(&[Feature::Stalls]) && exchange.wish.is_stream(),
        "body_timeout" => has(&[
            Feature::Partition,
            Feature::Freeze,
            Feature::SlowNetwork,
            Feature::ClockJump,
        ]),
        _ => false,
    };
    match explained {
        true => Ok(()),
        false => Err(format!("error {code:?}, which nothing explains")),
    }
}
