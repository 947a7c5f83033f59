//! Results on disk: a line of JSON for the settings, then one for each exchange, written as it ends. It must
//! never mix answers to different settings, nor lose one that was written.

use super::{
    judge::{Judged, Outcome},
    plan::Route,
    reply::{Call, Invalid, InvalidKind, Raw, Reply},
};
use crate::exit::Failure;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The version of the file's form.
const FORM: u64 = 1;
/// The most characters of a response that are kept as evidence.
const RAW_CHARS_MAX: usize = 64 << 10;

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Outcome, D::Error> {
        let name = String::deserialize(deserializer)?;
        Outcome::of_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("{name:?} is no outcome")))
    }
}

/// Which exchange, of all that a battery has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The request's name.
    pub request: String,
    /// Where it was sent.
    pub route: Route,
    /// Whether the answer was streamed.
    pub stream: bool,
    /// The repeat, from 0.
    pub repeat: u64,
}

/// An exchange, what is said of it, and the evidence.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// Which one.
    #[serde(flatten)]
    pub place: Place,
    /// The seed that was sent.
    pub seed: Option<u64>,
    /// Why it is no model output; then it has no outcome.
    pub invalid: Option<InvalidKind>,
    /// What is said of the answer.
    pub outcomes: BTreeSet<Outcome>,
    /// Why, in words.
    pub details: Vec<String>,
    /// The status of the response.
    pub status: Option<u16>,
    /// Why the model stopped.
    pub finish: Option<String>,
    /// The answer's text.
    pub content: String,
    /// Its reasoning.
    pub reasoning: String,
    /// Its calls.
    pub calls: Vec<Call>,
    /// The response as it came, where there is something to say of it.
    pub raw: Option<String>,
    /// How long it took; no outcome depends on it.
    pub seconds: f64,
}

impl Exchange {
    /// An exchange that was judged.
    pub fn new(
        place: Place,
        seed: Option<u64>,
        raw: &Raw,
        read: Result<(Reply, Judged), Invalid>,
    ) -> Exchange {
        let mut exchange = Exchange {
            place,
            seed,
            invalid: None,
            outcomes: BTreeSet::new(),
            details: Vec::new(),
            status: raw.status,
            finish: None,
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            raw: None,
            seconds: 0.0,
        };
        match read {
            Ok((reply, judged)) => {
                exchange.outcomes = judged.outcomes;
                exchange.details = judged.details;
                exchange.finish = Some(reply.finish.name().to_owned());
                exchange.content = reply.content;
                exchange.reasoning = reply.reasoning;
                exchange.calls = reply.calls;
            }
            Err(invalid) => {
                exchange.invalid = Some(invalid.kind);
                exchange.details = vec![invalid.what];
            }
        }
        if !exchange.details.is_empty() {
            let text = String::from_utf8_lossy(&raw.body);
            exchange.raw = Some(text.chars().take(RAW_CHARS_MAX).collect());
        }
        exchange
    }

    /// What was said, without ids and times: equal for equal answers.
    pub fn said(&self) -> String {
        let calls = self
            .calls
            .iter()
            .map(|call| json!([call.name, call.arguments]));
        let calls: Vec<Value> = calls.collect();
        json!([self.content, self.reasoning, calls, self.finish]).to_string()
    }
}

/// A results file that was read.
pub struct Results {
    /// What its exchanges are answers to.
    pub settings: Value,
    /// In the order in which they ended.
    pub exchanges: Vec<Exchange>,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

impl Results {
    /// Reads a results file. A last line that was cut off is passed over.
    ///
    /// # Errors
    /// A file that is none, and where.
    pub fn read(path: &Path) -> Result<Results, Failure> {
        let wrong = |what: String| {
            let next = "give a file that `lockstep battery --out` wrote";
            Failure::input(format!("{}: {what}", path.display()), next)
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let mut lines = text[..whole].lines();
        let first: Value = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|error| wrong(format!("line 1: {error}")))?;
        if first["lockstep_battery"] != FORM {
            return Err(wrong(
                "line 1 does not begin a results file of this form".to_owned(),
            ));
        }
        let mut exchanges = Vec::new();
        let mut seen = BTreeSet::new();
        for (idx, line) in lines.enumerate() {
            let exchange: Exchange = serde_json::from_str(line)
                .map_err(|error| wrong(format!("line {}: {error}", idx + 2)))?;
            if !seen.insert(exchange.place.clone()) {
                return Err(wrong(format!(
                    "line {}: this exchange is there twice",
                    idx + 2
                )));
            }
            exchanges.push(exchange);
        }
        Ok(Results {
            settings: first["settings"].clone(),
            exchanges,
            whole: whole as u64,
        })
    }
}

/// Where exchanges are written.
pub struct Writer {
    path: PathBuf,
    file: fs::File,
}

impl Writer {
    /// Begins a file, or goes on with one of the same settings; also the exchanges that it holds.
    ///
    /// # Errors
    /// A file of other settings, or that can't be written.
    pub fn open(
        path: &Path,
        settings: &Value,
        retry_invalid: bool,
    ) -> Result<(Writer, Vec<Exchange>), Failure> {
        let failure = |error: io::Error| {
            let what = format!("--out {}: {error}", path.display());
            Failure::usage(what, "name a file in a folder that can be written")
        };
        let length = match fs::metadata(path) {
            Ok(about) => about.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failure(error)),
        };
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        if length == 0 {
            let mut writer = Writer {
                path: path.to_path_buf(),
                file: options.open(path).map_err(failure)?,
            };
            let header = json!({"lockstep_battery": FORM, "settings": settings});
            writer.line(&header)?;
            return Ok((writer, Vec::new()));
        }
        let mut results = Results::read(path)?;
        if results.settings != *settings {
            let places = differing(&results.settings, settings).join(", ");
            return Err(Failure::input(
                format!(
                    "{} holds answers to other settings: {places}",
                    path.display()
                ),
                "name another file with --out, or ask with the settings of this one",
            ));
        }
        let file = options.open(path).map_err(failure)?;
        file.set_len(results.whole).map_err(failure)?;
        let mut writer = Writer {
            path: path.to_path_buf(),
            file,
        };
        if retry_invalid && results.exchanges.iter().any(|e| e.invalid.is_some()) {
            results
                .exchanges
                .retain(|exchange| exchange.invalid.is_none());
            writer.rewrite(settings, &results.exchanges)?;
        }
        Ok((writer, results.exchanges))
    }

    /// Writes an exchange, at once.
    ///
    /// # Errors
    /// A disk that is full, or gone.
    pub fn exchange(&mut self, exchange: &Exchange) -> Result<(), Failure> {
        self.line(exchange)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let failed = |what: String| Failure::failed(format!("{}: {what}", self.path.display()));
        let mut line = serde_json::to_string(value).map_err(|error| failed(error.to_string()))?;
        line.push('\n');
        // In one piece, so that whoever stops the program leaves whole lines.
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| failed(error.to_string()))
    }

    /// Writes a new file in the place of the old one, in one move.
    fn rewrite(&mut self, settings: &Value, exchanges: &[Exchange]) -> Result<(), Failure> {
        let new = self.path.with_extension("rewritten");
        let path = self.path.clone();
        let failed = |error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
        let mut writer = Writer {
            file: fs::File::create(&new).map_err(failed)?,
            path: new.clone(),
        };
        writer.line(&json!({"lockstep_battery": FORM, "settings": settings}))?;
        for exchange in exchanges {
            writer.line(exchange)?;
        }
        fs::rename(&new, &self.path).map_err(failed)?;
        self.file = writer.file;
        Ok(())
    }
}

/// Places in which two settings differ: at most five.
pub fn differing(a: &Value, b: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differ_at(a, b, String::new(), &mut found);
    found.truncate(5);
    found
}

fn differ_at(a: &Value, b: &Value, place: String, found: &mut Vec<String>) {
    if a == b {
        return;
    }
    let inside = |key: &dyn std::fmt::Display| match place.is_empty() {
        true => key.to_string(),
        false => format!("{place}.{key}"),
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let only_b = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(only_b) {
                let get =
                    |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or_default();
                differ_at(&get(a), &get(b), inside(key), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (idx, (a, b)) in a.iter().zip(b).enumerate() {
                // Requests go by their names.
                let key = match a["name"]
                    .as_str()
                    .filter(|name| Some(*name) == b["name"].as_str())
                {
                    Some(name) => name.to_owned(),
                    None => idx.to_string(),
                };
                differ_at(a, b, inside(&key), found);
            }
        }
        _ => found.push(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(repeat: u64, invalid: Option<InvalidKind>) -> Exchange {
        let place = Place {
            request: "a".to_owned(),
            route: Route::OpenAi,
            stream: false,
            repeat,
        };
        let raw = Raw {
            status: Some(200),
            body: b"{}".to_vec(),
            broken: None,
        };
        let invalid = invalid.map(|kind| Invalid {
            kind,
            what: "no answer".to_owned(),
        });
        let reply = Reply {
            content: "Hi".to_owned(),
            reasoning: String::new(),
            calls: Vec::new(),
            finish: super::super::reply::Finish::Stop,
            refused: None,
        };
        let judged = Judged {
            outcomes: BTreeSet::from([Outcome::Text]),
            details: Vec::new(),
        };
        Exchange::new(
            place,
            Some(repeat),
            &raw,
            invalid.map_or(Ok((reply, judged)), Err),
        )
    }

    #[test]
    fn a_file_goes_on_where_it_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.jsonl");
        let settings = json!({"repeats": 3, "requests": [{"name": "a", "body": {"x": 1}}]});
        let (mut writer, held) = Writer::open(&path, &settings, false).expect("a new file");
        assert!(held.is_empty());
        writer.exchange(&exchange(0, None)).expect("written");
        let broken = exchange(1, Some(InvalidKind::Transport));
        assert!(broken.raw.is_some() && broken.outcomes.is_empty());
        writer.exchange(&broken).expect("written");
        // Stopped in the middle of a line.
        let mut text = fs::read_to_string(&path).expect("it is there");
        text.push_str("{\"request\":\"a\",");
        fs::write(&path, &text).expect("written");
        let (mut writer, held) = Writer::open(&path, &settings, false).expect("the same settings");
        assert_eq!(held.len(), 2);
        assert_eq!(held[1].invalid, Some(InvalidKind::Transport));
        writer.exchange(&exchange(2, None)).expect("written");
        let results = Results::read(&path).expect("whole lines");
        assert_eq!(results.exchanges.len(), 3);
        assert_eq!(results.exchanges[0].said(), results.exchanges[2].said());
        // What was no answer is asked again where that is wanted.
        let (mut writer, held) = Writer::open(&path, &settings, true).expect("the same settings");
        let repeats: Vec<u64> = held.iter().map(|exchange| exchange.place.repeat).collect();
        assert_eq!(repeats, [0, 2]);
        writer.exchange(&exchange(1, None)).expect("written");
        assert_eq!(
            Results::read(&path).expect("whole lines").exchanges.len(),
            3
        );
    }

    #[test]
    fn other_settings_and_other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.jsonl");
        let settings = json!({"repeats": 3, "requests": [{"name": "a", "body": {"x": 1}}]});
        let (mut writer, _) = Writer::open(&path, &settings, false).expect("a new file");
        writer.exchange(&exchange(0, None)).expect("written");
        let refused = |settings: &Value| {
            let opened = Writer::open(&path, settings, false).map(drop);
            opened.expect_err("other settings").what
        };
        let more = json!({"repeats": 4, "requests": [{"name": "a", "body": {"x": 1}}]});
        assert!(refused(&more).ends_with("other settings: repeats"));
        let other = json!({"repeats": 3, "requests": [{"name": "a", "body": {"x": 2, "y": 1}}]});
        assert!(refused(&other).ends_with("requests.a.body.x, requests.a.body.y"));
        writer.exchange(&exchange(0, None)).expect("written");
        let read = Results::read(&path).map(drop).expect_err("twice");
        assert!(read.what.contains("line 3"), "{}", read.what);
        for text in [
            "x\n",
            "{}\n",
            "{\"lockstep_battery\":1,\"settings\":{}}\n{}\n",
            "x",
        ] {
            fs::write(&path, text).expect("written");
            assert!(Results::read(&path).is_err(), "{text}");
        }
    }
}
