//! What a reference file holds: cases, each a sequence of tokens with arrays that an oracle computed from it.
//!
//! | tensor | what |
//! | --- | --- |
//! | `input_ids` (T) | a case's tokens |
//! | `logits` or `prefill_logits` (T, vocab) | after each of them |
//! | `hidden_states` (layers + 1, T, hidden) | after the embedding and each layer, the last one normed |
//! | `n_prefill` (1), `decode_logits` | tokens of the prompt; logits from its last token on, one token per step |
//! | `mtp_logits` (T - 1, vocab) | of the checkpoint's drafting head, for each token but the first |
//! | `greedy_ids` (G), `greedy_logits` (G, vocab) | the greedy continuation, and what it was taken from |
//!
//! A case's names may have a prefix: `long_` or a number and a point.

use super::CheckError;
use lockstep_package::{Dtype, Package, Weights};
use std::path::Path;

/// A sequence and what is known of it.
pub(super) struct Case {
    /// The name of its tokens.
    pub(super) name: String,
    /// The tokens, the greedy continuation but for its last one included.
    pub(super) tokens: Vec<u32>,
    /// Tokens that the step by step run computes in its first step, at least 1.
    pub(super) num_prefill: usize,
    pub(super) expected: Vec<Expected>,
    pub(super) greedy: Option<Greedy>,
}

/// Where our side of a comparison comes from.
pub(super) enum Source {
    /// Logits of the run all at once.
    Whole,
    /// Logits of the run step by step, from the last token of the prompt on.
    Steps,
    /// Logits of the drafting head, of the run all at once.
    Mtp,
    /// Hidden states before this layer, or after the last.
    Hidden(usize),
}

/// An array of the oracle.
pub(super) struct Expected {
    pub(super) name: String,
    pub(super) source: Source,
    /// The row of the source that its first row belongs to.
    pub(super) first_row: usize,
    pub(super) values: Vec<f32>,
}

/// A greedy continuation.
pub(super) struct Greedy {
    pub(super) name: String,
    /// The position of its first token.
    pub(super) first_pos: usize,
    pub(super) tokens: Vec<u32>,
}

/// Reads all cases.
pub(super) fn read(path: &Path, package: &Package) -> Result<Vec<Case>, CheckError> {
    let file = File {
        weights: Weights::open_file(path).map_err(CheckError::Reference)?,
        vocab_size: package.config.vocab_size,
        has_mtp: package.has_mtp(),
    };
    let names = file.weights.tensors().map(|(name, _)| name.to_string());
    let prefixes: Vec<String> = names
        .filter_map(|name| name.strip_suffix("input_ids").map(str::to_string))
        .collect();
    let cases: Vec<Case> = prefixes
        .iter()
        .map(|prefix| file.case(prefix))
        .collect::<Result<_, _>>()?;
    if cases.iter().all(|case| case.expected.is_empty()) {
        return Err(CheckError::Content {
            tensor: "input_ids".to_string(),
            found: "absent, or without logits".to_string(),
            expected: "tokens with the logits that follow from them".to_string(),
        });
    }
    Ok(cases)
}

struct File {
    weights: Weights,
    vocab_size: usize,
    // Whether the model has a drafting head to compare.
    has_mtp: bool,
}

impl File {
    fn case(&self, prefix: &str) -> Result<Case, CheckError> {
        let name = |name: &str| format!("{prefix}{name}");
        let mut tokens = self.tokens(&name("input_ids"))?;
        let num_input = tokens.len();
        let mut expected = Vec::new();
        for logits in [name("logits"), name("prefill_logits")] {
            self.expect(&mut expected, logits, Source::Whole, 0, num_input)?;
        }
        if num_input > 1 && self.has_mtp {
            self.expect(
                &mut expected,
                name("mtp_logits"),
                Source::Mtp,
                1,
                num_input - 1,
            )?;
        }
        if let Some(values) = self.floats(&name("hidden_states"))? {
            let num_layers = self.shape(&name("hidden_states"))[0];
            let size = values.len() / num_layers.max(1);
            for (layer, values) in values.chunks_exact(size.max(1)).enumerate() {
                expected.push(Expected {
                    name: name(&format!("hidden_states[{layer}]")),
                    source: Source::Hidden(layer),
                    first_row: 0,
                    values: values.to_vec(),
                });
            }
        }
        let num_prefill = match self.has(&name("n_prefill")) {
            true => self
                .integers(&name("n_prefill"))?
                .first()
                .map_or(0, |&n| n as usize),
            false => num_input,
        };
        if num_prefill == 0 || num_prefill > num_input {
            return Err(self.wrong(
                &name("n_prefill"),
                num_prefill.to_string(),
                format!("1 to {num_input}"),
            ));
        }
        let rows = num_input + 1 - num_prefill;
        self.expect(&mut expected, name("decode_logits"), Source::Steps, 0, rows)?;
        let mut greedy = None;
        if self.has(&name("greedy_ids")) {
            let mut ids = self.tokens(&name("greedy_ids"))?;
            // Some oracles repeat the prompt in front.
            if ids.len() > num_input && ids.starts_with(&tokens) {
                ids.drain(..num_input);
            }
            let first_row = num_input - num_prefill;
            let logits = name("greedy_logits");
            self.expect(&mut expected, logits, Source::Steps, first_row, ids.len())?;
            tokens.extend(&ids[..ids.len() - 1]);
            greedy = Some(Greedy {
                name: name("greedy_ids"),
                first_pos: num_input,
                tokens: ids,
            });
        }
        Ok(Case {
            name: name("input_ids"),
            tokens,
            num_prefill,
            expected,
            greedy,
        })
    }

    /// Adds an array of logits, if the file has it.
    fn expect(
        &self,
        expected: &mut Vec<Expected>,
        name: String,
        source: Source,
        first_row: usize,
        num_rows: usize,
    ) -> Result<(), CheckError> {
        let Some(values) = self.floats(&name)? else {
            return Ok(());
        };
        let shape = self.shape(&name);
        if shape != [num_rows, self.vocab_size] {
            let wanted = format!("{:?}", [num_rows, self.vocab_size]);
            return Err(self.wrong(&name, format!("of shape {shape:?}"), wanted));
        }
        expected.push(Expected {
            name,
            source,
            first_row,
            values,
        });
        Ok(())
    }

    fn wrong(&self, tensor: &str, found: String, expected: String) -> CheckError {
        CheckError::Content {
            tensor: tensor.to_string(),
            found,
            expected,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.weights.tensor(name).is_ok()
    }

    fn shape(&self, name: &str) -> Vec<usize> {
        self.weights
            .tensor(name)
            .map_or(Vec::new(), |view| view.shape.to_vec())
    }

    fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, CheckError> {
        match self.weights.tensor(name) {
            Ok(view) => view.to_f32().map(Some).map_err(CheckError::Reference),
            Err(_) => Ok(None),
        }
    }

    fn integers(&self, name: &str) -> Result<Vec<i64>, CheckError> {
        let view = self.weights.tensor(name).map_err(CheckError::Reference)?;
        match view.dtype {
            Dtype::Other { bits: 32 } => {
                let (items, _) = view.bytes.as_chunks::<4>();
                Ok(items
                    .iter()
                    .map(|item| i64::from(i32::from_le_bytes(*item)))
                    .collect())
            }
            Dtype::Other { bits: 64 } => {
                let (items, _) = view.bytes.as_chunks::<8>();
                Ok(items.iter().map(|item| i64::from_le_bytes(*item)).collect())
            }
            other => Err(self.wrong(name, format!("{other:?}"), "I32 or I64".to_string())),
        }
    }

    /// Token ids, at least one, all inside the vocabulary.
    fn tokens(&self, name: &str) -> Result<Vec<u32>, CheckError> {
        let ids = self.integers(name)?;
        let max = self.vocab_size as i64;
        if let Some(id) = ids.iter().find(|&&id| !(0..max).contains(&id)) {
            return Err(self.wrong(name, id.to_string(), format!("token ids below {max}")));
        }
        if ids.is_empty() {
            return Err(self.wrong(name, "empty".to_string(), "at least one token".to_string()));
        }
        Ok(ids.into_iter().map(|id| id as u32).collect())
    }
}
