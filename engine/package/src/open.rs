//! Opening a package: which files there are, which are needed, and how they fit together.
//!
//! It must never read weights beyond their headers: that is the backend's work, with its own
//! progress.

use crate::config::{ModelConfig, object};
use crate::contract::{Contract, ContractFiles};
use crate::embedded::{self, EMBEDDED_NAME};
use crate::error::PackageError;
use crate::progress::Progress;
use crate::provenance::Source;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::weights::{TensorInfo, TensorView, Weights};
use crate::{RequiredTensor, mtp_tensors, required_tensors};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The prefix of text tensors in checkpoints that see images too.
const MULTIMODAL_PREFIX: &str = "model.language_model.";

/// A model, ready to be computed with and to be talked to.
#[derive(Debug)]
pub struct Package {
    /// What it is called: the folder's name, or `organisation/name` for a model of a hub's cache.
    pub name: String,
    /// Architecture and dimensions.
    pub config: ModelConfig,
    /// Text to tokens and back. See [`Tokenizer::is_present`].
    pub tokenizer: Tokenizer,
    /// Conversations to prompts, where the package has a template.
    pub template: Option<ChatTemplate>,
    /// End tokens, sampling defaults, tags.
    pub contract: Contract,
    /// Where it was read from.
    pub source: Source,
    /// The weights, where they lie.
    pub weights: Weights,
}

/// A conversation as the model will read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPrompt {
    /// As a person reads it.
    pub text: String,
    /// As the model reads it.
    pub token_ids: Vec<u32>,
}

impl Package {
    /// Opens a Hugging Face folder and checks all of it but the weights' values.
    pub fn open(path: &Path, progress: &dyn Progress) -> Result<Package, PackageError> {
        if !path.is_dir() {
            let expected = "folder with config.json and model.safetensors".to_string();
            return Err(PackageError::MissingFile {
                path: path.to_path_buf(),
                expected,
            });
        }
        let source = Source::Directory(path.to_path_buf());
        progress.begin("opening", 2);
        let opened = Weights::open(path).and_then(|weights| {
            progress.advance(1);
            Package::assemble(folder_name(path), source, weights)
        });
        progress.advance(1);
        progress.end();
        opened
    }

    /// The model that is part of the program.
    pub fn embedded() -> Result<Package, PackageError> {
        Package::assemble(
            EMBEDDED_NAME.to_string(),
            embedded::source(),
            embedded::weights()?,
        )
    }

    fn assemble(name: String, source: Source, weights: Weights) -> Result<Package, PackageError> {
        let files = Files { source: &source };
        let (config_path, config_text) = files.required("config.json")?;
        let mut config = ModelConfig::parse(&config_path, &config_text)?;
        if weights.has_prefix(MULTIMODAL_PREFIX) {
            config.tensor_prefix = MULTIMODAL_PREFIX.to_string();
        }
        let tokenizer = match files.optional("tokenizer.json")? {
            Some((path, text)) => Tokenizer::parse(&path, &text)?,
            None => Tokenizer::absent(&files.path("tokenizer.json")),
        };
        if tokenizer.vocab_size() > config.vocab_size {
            let message = format!(
                "token ids go up to {}, expected them below vocab_size {} of config.json",
                tokenizer.vocab_size() - 1,
                config.vocab_size
            );
            return Err(PackageError::tokenizer(tokenizer.path(), message));
        }
        let settings = files.object("tokenizer_config.json")?;
        let special_tokens = settings
            .as_ref()
            .map(|(_, map)| special_tokens(map))
            .unwrap_or_default();
        let template = template(&files, settings.as_ref(), &special_tokens, &tokenizer)?;
        let generation = files.optional("generation_config.json")?;
        let contract_files = ContractFiles {
            config: (&config_path, &config_text),
            generation: generation
                .as_ref()
                .map(|(path, text)| (path.as_path(), &text[..])),
            eos_token: special_tokens.get("eos_token").map(String::as_str),
        };
        let contract = Contract::read(&contract_files, &config, &tokenizer, template.as_ref())?;
        Ok(Package {
            name,
            config,
            tokenizer,
            template,
            contract,
            source,
            weights,
        })
    }

    /// The tensor called `name`, where it lies.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, PackageError> {
        self.weights.tensor(name)
    }

    /// All tensors in order of name, those that the architecture doesn't need included.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.weights.tensors()
    }

    /// The tensors that the architecture needs, in order of use.
    pub fn required_tensors(&self) -> Vec<RequiredTensor> {
        required_tensors(&self.config)
    }

    /// The tensors of the checkpoint's own drafting head, in order of use: none where the architecture has no
    /// place for one. Whether they are there is what [`Package::has_mtp`] says.
    pub fn mtp_tensors(&self) -> Vec<RequiredTensor> {
        mtp_tensors(&self.config)
    }

    /// Whether the checkpoint brings a drafting head: all of it, or a part, which is then a problem.
    pub fn has_mtp(&self) -> bool {
        let tensors = self.mtp_tensors();
        let mut tensors = tensors.iter();
        tensors.any(|tensor| self.weights.tensor(&tensor.name).is_ok())
    }

    /// Fails at the first tensor of the drafting head that is missing or has another shape.
    pub fn check_mtp_tensors(&self) -> Result<(), PackageError> {
        self.mtp_tensors()
            .iter()
            .try_for_each(|required| self.check_tensor(required))
    }

    /// Fails at the first tensor that the architecture needs and that is missing or has another
    /// shape.
    pub fn check_tensors(&self) -> Result<(), PackageError> {
        self.required_tensors()
            .iter()
            .try_for_each(|required| self.check_tensor(required))
    }

    pub(crate) fn check_tensor(&self, required: &RequiredTensor) -> Result<(), PackageError> {
        match self.weights.tensor(&required.name) {
            Ok(view) => view
                .expect_float()
                .and_then(|()| view.expect_shape(&required.shape)),
            Err(_) => Err(PackageError::MissingTensor {
                tensor: required.name.clone(),
                expected: format!("shape {:?}", required.shape),
            }),
        }
    }

    /// Renders a conversation and turns it into tokens, so that structural tokens come from the
    /// template only.
    pub fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
        add_generation_prompt: bool,
    ) -> Result<EncodedPrompt, PackageError> {
        let template = self
            .template
            .as_ref()
            .ok_or_else(|| PackageError::NoTemplate {
                name: self.name.clone(),
            })?;
        let rendered = template
            .render(messages, tools, kwargs, add_generation_prompt)?
            .resolved();
        let token_ids = self.tokenizer.encode_resolved(&rendered)?;
        Ok(EncodedPrompt {
            text: rendered.text,
            token_ids,
        })
    }
}

/// `organisation/name` for a snapshot in a hub's cache, else the folder's own name.
fn folder_name(path: &Path) -> String {
    let absolute = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    for ancestor in absolute.ancestors() {
        let name = ancestor
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        if let Some(model) = name.strip_prefix("models--") {
            return model.replacen("--", "/", 1);
        }
    }
    // Through a link, the name that the user gave is the better one.
    let given = path.file_name().or(absolute.file_name());
    given.map_or_else(
        || "model".to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The files of a source, by name.
struct Files<'a> {
    source: &'a Source,
}

/// A file that was read: where it is, and what it holds.
type Content = (PathBuf, Cow<'static, [u8]>);

/// A file that was read as a JSON object.
type Object = (PathBuf, Map<String, Value>);

impl Files<'_> {
    fn path(&self, name: &str) -> PathBuf {
        match self.source {
            Source::Directory(folder) => folder.join(name),
            Source::Embedded(_) => PathBuf::from(EMBEDDED_NAME).join(name),
        }
    }

    fn optional(&self, name: &str) -> Result<Option<Content>, PackageError> {
        let path = self.path(name);
        match self.source {
            Source::Embedded(_) => {
                Ok(embedded::file(name).map(|bytes| (path, Cow::Borrowed(bytes))))
            }
            Source::Directory(_) => match std::fs::read(&path) {
                Ok(bytes) => Ok(Some((path, Cow::Owned(bytes)))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(PackageError::io(&path, error)),
            },
        }
    }

    fn required(&self, name: &str) -> Result<Content, PackageError> {
        self.optional(name)?
            .ok_or_else(|| PackageError::MissingFile {
                path: self.path("").to_path_buf(),
                expected: name.to_string(),
            })
    }

    fn object(&self, name: &str) -> Result<Option<Object>, PackageError> {
        match self.optional(name)? {
            Some((path, text)) => {
                let map = object(&path, &text)?;
                Ok(Some((path, map)))
            }
            None => Ok(None),
        }
    }

    fn text(&self, name: &str) -> Result<Option<(PathBuf, String)>, PackageError> {
        let Some((path, bytes)) = self.optional(name)? else {
            return Ok(None);
        };
        match String::from_utf8(bytes.into_owned()) {
            Ok(text) => Ok(Some((path, text))),
            Err(error) => Err(PackageError::io(&path, format!("not UTF-8: {error}"))),
        }
    }
}

/// `bos_token` and the like: strings, or objects with a `content`.
fn special_tokens(settings: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut tokens = BTreeMap::new();
    for (name, value) in settings {
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        if let Some(text) = text
            && name.ends_with("_token")
        {
            tokens.insert(name.clone(), text.to_string());
        }
    }
    tokens
}

/// The chat template, from the first place that has one.
fn template(
    files: &Files<'_>,
    settings: Option<&Object>,
    special_tokens: &BTreeMap<String, String>,
    tokenizer: &Tokenizer,
) -> Result<Option<ChatTemplate>, PackageError> {
    let found = match files.text("chat_template.jinja")? {
        Some((path, source)) => Some((path, BTreeMap::from([("default".to_string(), source)]))),
        None => {
            let own_file = files.object("chat_template.json")?;
            let mut found = None;
            for (path, map) in own_file.iter().chain(settings) {
                if let Some(value) = map.get("chat_template").filter(|value| !value.is_null()) {
                    found = Some((path.clone(), named_templates(path, value)?));
                    break;
                }
            }
            found
        }
    };
    let Some((path, sources)) = found else {
        return Ok(None);
    };
    let marking = tokenizer.marking().clone();
    ChatTemplate::new(&path, sources, special_tokens.clone(), marking).map(Some)
}

/// A `chat_template`: one text, or a list of names and texts.
fn named_templates(path: &Path, value: &Value) -> Result<BTreeMap<String, String>, PackageError> {
    let wrong = |value: &Value| PackageError::Field {
        path: path.to_path_buf(),
        field: "chat_template".to_string(),
        value: value.to_string(),
        expected: "a text, or an array of objects with name and template".to_string(),
    };
    if let Some(source) = value.as_str() {
        return Ok(BTreeMap::from([(
            "default".to_string(),
            source.to_string(),
        )]));
    }
    let mut sources = BTreeMap::new();
    for item in value.as_array().ok_or_else(|| wrong(value))? {
        let text = |field: &str| item.get(field).and_then(Value::as_str);
        let (Some(name), Some(source)) = (text("name"), text("template")) else {
            return Err(wrong(item));
        };
        sources.insert(name.to_string(), source.to_string());
    }
    Ok(sources)
}

#[cfg(test)]
mod tests;
