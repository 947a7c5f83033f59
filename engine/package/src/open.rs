//! Opening a package: which files there are, which are needed, and how they fit together. The files of a one-file
//! package are read from it and go the same way; only the contract is the one that was packed.
//!
//! It must never read weights beyond their headers: that is the backend's work, with its own
//! progress.

use crate::advisories::{self, Advisory};
use crate::blueprint::Blueprint;
use crate::config::{ModelConfig, object};
use crate::contract::{Contract, ContractFiles};
use crate::embedded::{self, EMBEDDED_NAME};
use crate::error::PackageError;
use crate::packed::{FILE_PREFIX, Packed, SCALES, VALUES};
use crate::progress::Progress;
use crate::provenance::Source;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::weights::{TensorInfo, TensorView, Weights};
use crate::{RequiredTensor, mtp_tensors, required_tensors};
use lockstep_numerics::groups::groups;
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
    /// What a one-file package says about itself; None for a folder.
    pub packed: Option<Packed>,
    /// Advisories about this package that the user overrode, by name: whoever records what was computed records them.
    pub allowed_advisories: Vec<String>,
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
    /// Opens a Hugging Face folder, or a file that `lockstep pack` wrote, and checks all of it but the weights' values.
    /// Whether an advisory is about it is not asked before it is computed with: see [`Package::check_advisories`].
    pub fn open(path: &Path, progress: &dyn Progress) -> Result<Package, PackageError> {
        if !path.exists() {
            let expected = "folder with config.json and model.safetensors, or package".to_string();
            return Err(PackageError::MissingFile {
                path: path.to_path_buf(),
                expected,
            });
        }
        progress.begin("opening", 2);
        let opened = if path.is_dir() {
            Weights::open(path).and_then(|weights| {
                progress.advance(1);
                let source = Source::Directory(path.to_path_buf());
                Package::assemble(folder_name(path), source, weights, None)
            })
        } else {
            Weights::open_file(path).and_then(|weights| {
                progress.advance(1);
                let packed = Packed::read(path, &weights)?;
                let source = Source::Packed(path.to_path_buf());
                Package::assemble(packed.name.clone(), source, weights, Some(packed))
            })
        };
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
            None,
        )
    }

    fn assemble(
        name: String,
        source: Source,
        weights: Weights,
        packed: Option<Packed>,
    ) -> Result<Package, PackageError> {
        let files = Files {
            source: &source,
            weights: &weights,
        };
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
        let contract = match &packed {
            Some(packed) => packed.contract(&config)?,
            None => Contract::read(&contract_files, &config, &tokenizer, template.as_ref())?,
        };
        Ok(Package {
            name,
            config,
            tokenizer,
            template,
            contract,
            source,
            weights,
            packed,
            allowed_advisories: Vec::new(),
        })
    }

    /// The advisories that are about what wrote this package; none for a folder.
    pub fn advisories(&self) -> Vec<&'static Advisory> {
        let packer = self.packed.as_ref().map(|packed| &packed.packer);
        packer.map(advisories::about).unwrap_or_default()
    }

    /// Overrides the advisories of these names where they are about this package, and keeps that in
    /// [`Package::allowed_advisories`].
    pub fn allow_advisories(&mut self, names: &[String]) {
        let about = self.advisories().into_iter();
        let about = about.map(|advisory| advisory.name.to_string());
        self.allowed_advisories = about.filter(|name| names.contains(name)).collect();
    }

    /// Fails at the first advisory about this package that was not overridden. Nothing may compute with the package
    /// before this was asked.
    pub fn check_advisories(&self) -> Result<(), PackageError> {
        let is_allowed = |name: &str| self.allowed_advisories.iter().any(|other| other == name);
        let refusing = self
            .advisories()
            .into_iter()
            .find(|found| !is_allowed(found.name));
        match (refusing, &self.packed) {
            (Some(advisory), Some(packed)) => Err(PackageError::Advisory {
                path: packed.path.clone(),
                name: advisory.name,
                what: advisory.what,
                source: self.name.clone(),
            }),
            _ => Ok(()),
        }
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
        tensors.any(|tensor| {
            self.weights.tensor(&tensor.name).is_ok() || self.quantised(&tensor.name).is_some()
        })
    }

    /// The int8 values and the scales of a matrix, where the package has it quantised.
    pub(crate) fn quantised(&self, name: &str) -> Option<[TensorView<'_>; 2]> {
        self.packed.as_ref()?;
        let part = |end: &str| self.weights.tensor(&format!("{name}{end}")).ok();
        Some([part(VALUES)?, part(SCALES)?])
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
        if let Some([values, scales]) = self.quantised(&required.name) {
            let [rows, columns] = required.shape[..] else {
                let found = "quantised".to_string();
                return Err(values.wrong(found, "it as it is: it is no matrix".to_string()));
            };
            values.expect_dtype("I8")?;
            values.expect_shape(&required.shape)?;
            scales.expect_dtype("F32")?;
            scales.expect_shape(&[rows, groups(columns)])?;
            // Rows of an embedding are looked up as stored, also where it is the output matrix too.
            if required.name != Blueprint::of(&self.config).embedding {
                return Ok(());
            }
        }
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
    /// Where a one-file package carries them.
    weights: &'a Weights,
}

/// A file that was read: where it is, and what it holds.
type Content<'a> = (PathBuf, Cow<'a, [u8]>);

/// A file that was read as a JSON object.
type Object = (PathBuf, Map<String, Value>);

impl<'a> Files<'a> {
    fn path(&self, name: &str) -> PathBuf {
        match self.source {
            Source::Directory(folder) => folder.join(name),
            Source::Embedded(_) => PathBuf::from(EMBEDDED_NAME).join(name),
            Source::Packed(path) => path.join(name),
        }
    }

    fn optional(&self, name: &str) -> Result<Option<Content<'a>>, PackageError> {
        let path = self.path(name);
        let found = match self.source {
            Source::Packed(_) => {
                let view = self.weights.tensor(&format!("{FILE_PREFIX}{name}"));
                view.ok().map(|view| Cow::Borrowed(view.bytes))
            }
            _ => self.source.read(name)?,
        };
        Ok(found.map(|bytes| (path, bytes)))
    }

    fn required(&self, name: &str) -> Result<Content<'a>, PackageError> {
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
