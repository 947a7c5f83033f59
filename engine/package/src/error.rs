//! What can be wrong with a package, as one closed set of errors.
//!
//! Each names the file and the field, tensor or line, what was found there and what was expected.
//! It must never be a panic: a package is input, and input may be anything.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a package can't be opened, read, rendered or fetched.
#[derive(Debug, Clone, PartialEq)]
pub enum PackageError {
    /// The operating system refused to open, map or read `path`.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's own words.
        message: String,
    },
    /// A file that a package must have isn't there.
    MissingFile {
        /// The folder that was searched.
        path: PathBuf,
        /// The name, or names, of which one was expected.
        expected: String,
    },
    /// A file isn't the JSON that it should be.
    Json {
        /// The file.
        path: PathBuf,
        /// What the JSON reader met, with line and column.
        message: String,
    },
    /// A field of `config.json` or `generation_config.json` is missing, absurd or not supported.
    Field {
        /// The file.
        path: PathBuf,
        /// The field with its parents, such as `text_config.hidden_size`.
        field: String,
        /// The value that was found, or `absent`.
        value: String,
        /// What was expected instead.
        expected: String,
    },
    /// The header of a safetensors file, or of its index, contradicts itself or the file.
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the numbers.
        message: String,
    },
    /// A tensor has the wrong type, shape or place.
    Tensor {
        /// The file that holds it.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// No file of the package holds this tensor.
    MissingTensor {
        /// Its name.
        tensor: String,
        /// The shape that the architecture needs, where it is known.
        expected: String,
    },
    /// A weight is NaN or infinite.
    Value {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The flat index of the first such element.
        index: usize,
        /// The value: `NaN`, `inf` or `-inf`.
        value: String,
    },
    /// The tokenizer can't be built from its file, or its file has parts that aren't supported.
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A text can't be turned into tokens.
    Encode {
        /// What is wrong.
        message: String,
    },
    /// The chat template doesn't compile, or failed while it rendered.
    Template {
        /// The file that holds the template.
        path: PathBuf,
        /// The line in the template, from 1; 0 where it isn't known.
        line: usize,
        /// What is wrong. For a refusal, the words of the template.
        message: String,
        /// Whether the template itself refused the conversation (`raise_exception`), so that the
        /// request is at fault rather than the package.
        refused: bool,
    },
    /// The package has no chat template, so that a conversation can't be turned into a prompt.
    NoTemplate {
        /// The package's name.
        name: String,
    },
    /// An advisory is about the packer that wrote the package.
    Advisory {
        /// The package.
        path: PathBuf,
        /// The advisory's name.
        name: &'static str,
        /// What is wrong with what that packer wrote.
        what: &'static str,
        /// What the package was packed from.
        source: String,
    },
    /// The hub doesn't have it, or can't be reached.
    Hub {
        /// The model, as `organisation/name`.
        name: String,
        /// What went wrong, at which address.
        message: String,
    },
}

impl PackageError {
    /// An error of the operating system at `path`.
    pub(crate) fn io(path: &Path, error: impl fmt::Display) -> Self {
        PackageError::Io {
            path: path.to_path_buf(),
            message: error.to_string(),
        }
    }

    /// The file that its words begin with; a refusal by a template is no fault of a file.
    fn path(&self) -> Option<&Path> {
        match self {
            PackageError::Io { path, .. }
            | PackageError::MissingFile { path, .. }
            | PackageError::Json { path, .. }
            | PackageError::Field { path, .. }
            | PackageError::Header { path, .. }
            | PackageError::Tensor { path, .. }
            | PackageError::Value { path, .. }
            | PackageError::Tokenizer { path, .. }
            | PackageError::Template {
                path,
                refused: false,
                ..
            }
            | PackageError::Advisory { path, .. } => Some(path),
            PackageError::MissingTensor { .. }
            | PackageError::Encode { .. }
            | PackageError::Template { .. }
            | PackageError::NoTemplate { .. }
            | PackageError::Hub { .. } => None,
        }
    }

    /// A broken header of `path`.
    pub(crate) fn header(path: &Path, message: impl Into<String>) -> Self {
        PackageError::Header {
            path: path.to_path_buf(),
            message: message.into(),
        }
    }

    /// A tokenizer file that can't be used.
    pub(crate) fn tokenizer(path: &Path, message: impl Into<String>) -> Self {
        PackageError::Tokenizer {
            path: path.to_path_buf(),
            message: message.into(),
        }
    }
}

impl fmt::Display for PackageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.path() {
            write!(f, "{}: ", path.display())?;
        }
        match self {
            PackageError::Io { message, .. }
            | PackageError::Header { message, .. }
            | PackageError::Tokenizer { message, .. }
            | PackageError::Encode { message } => f.write_str(message),
            PackageError::MissingFile { expected, .. } => write!(f, "no {expected} there"),
            PackageError::Json { message, .. } => {
                write!(f, "not the JSON that it should be: {message}")
            }
            PackageError::Field {
                field,
                value,
                expected,
                ..
            } => write!(f, "{field} is {value}, expected {expected}"),
            PackageError::Tensor {
                tensor,
                found,
                expected,
                ..
            } => write!(f, "tensor {tensor} is {found}, expected {expected}"),
            PackageError::MissingTensor { tensor, expected } => {
                let place = "in no file of the package";
                write!(f, "tensor {tensor} is {place}, expected {expected}")
            }
            PackageError::Value {
                tensor,
                index,
                value,
                ..
            } => {
                let expected = "expected a finite number";
                write!(
                    f,
                    "tensor {tensor} holds {value} at index {index}, {expected}"
                )
            }
            PackageError::Template {
                refused: true,
                message,
                ..
            } => write!(f, "the chat template refused the conversation: {message}"),
            PackageError::Template { line, message, .. } => {
                write!(f, "chat template, line {line}: {message}")
            }
            PackageError::NoTemplate { name } => {
                let next = "use plain completions instead";
                write!(f, "{name} has no chat template; {next}")
            }
            PackageError::Advisory {
                name, what, source, ..
            } => {
                let next = "re-pack from";
                write!(f, "refused by the advisory {name}: {what}; {next} {source}")
            }
            PackageError::Hub { name, message } => write!(f, "{name}: {message}"),
        }
    }
}

impl std::error::Error for PackageError {}
