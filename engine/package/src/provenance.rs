//! Where a package's bytes come from: each source file with its SHA-256 and its git blob id.
//!
//! Both are computed only when asked for, since they read every byte. The two are never mixed up:
//! model hubs list small files by git blob id (a SHA-1) and large ones by SHA-256, and a comparison
//! of the wrong pair always fails.

use crate::error::PackageError;
use crate::progress::Progress;
use crate::weights::Weights;
use sha1::Digest;
use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files that are read beside the weights, where a model has them.
pub(crate) const SMALL_FILES: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Says which file holds which tensor of a sharded checkpoint.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";

/// One file of a package.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SourceFile {
    /// Its name within the package.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The hashes of a file, in lowercase hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileHashes {
    /// SHA-256 of the content.
    pub sha256: String,
    /// SHA-1 of `blob LENGTH`, a zero byte, and the content: what git calls the file.
    pub git_blob: String,
}

impl FileHashes {
    /// Those of a content.
    pub fn of(content: &[u8]) -> FileHashes {
        let mut git = sha1::Sha1::new();
        git.update(format!("blob {}\0", content.len()));
        git.update(content);
        FileHashes {
            sha256: hex(&sha2::Sha256::digest(content)),
            git_blob: hex(&git.finalize()),
        }
    }
}

/// Where a package was read from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder.
    Directory(PathBuf),
    /// The program itself: file names and contents.
    Embedded(&'static [(&'static str, &'static [u8])]),
    /// One file that `lockstep pack` wrote.
    Packed(PathBuf),
}

/// A file that a package is made of, with its content.
pub(crate) struct UsedFile<'a> {
    pub(crate) name: String,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Whether a one-file package carries it as it is; weights are stored otherwise there.
    pub(crate) carried: bool,
}

impl UsedFile<'_> {
    pub(crate) fn hashes(&self, progress: &dyn Progress) -> Result<FileHashes, PackageError> {
        let size = self.bytes.len() as u64;
        hash(Path::new(&self.name), size, &*self.bytes, progress)
    }
}

impl Source {
    /// The files that make up the package, in order of name, those of its subfolders excluded.
    pub fn files(&self) -> Result<Vec<SourceFile>, PackageError> {
        let mut files = Vec::new();
        match self {
            Source::Directory(folder) => {
                let entries = std::fs::read_dir(folder).map_err(|e| PackageError::io(folder, e))?;
                for entry in entries {
                    let path = entry.map_err(|e| PackageError::io(folder, e))?.path();
                    // Snapshots of a hub's cache are folders of links: follow them.
                    let meta = std::fs::metadata(&path).map_err(|e| PackageError::io(&path, e))?;
                    let name = path
                        .file_name()
                        .map(|name| name.to_string_lossy().into_owned());
                    if let Some(name) = name.filter(|name| meta.is_file() && is_source(name)) {
                        files.push(SourceFile {
                            name,
                            size: meta.len(),
                        });
                    }
                }
            }
            Source::Packed(path) => {
                let meta = std::fs::metadata(path).map_err(|e| PackageError::io(path, e))?;
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                files.push(SourceFile {
                    name: name.into_owned(),
                    size: meta.len(),
                });
            }
            Source::Embedded(contents) => {
                for (name, bytes) in *contents {
                    files.push(SourceFile {
                        name: (*name).to_string(),
                        size: bytes.len() as u64,
                    });
                }
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// The files that are read when a model is served, with the bytes that are used, in order of name.
    pub(crate) fn used_files<'a>(
        &self,
        weights: &'a Weights,
    ) -> Result<Vec<UsedFile<'a>>, PackageError> {
        let mut files = Vec::new();
        for file in weights.files() {
            files.push(UsedFile {
                name: file
                    .path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                bytes: Cow::Borrowed(file.bytes()),
                carried: false,
            });
        }
        for name in SMALL_FILES.into_iter().chain([INDEX_FILE]) {
            if let Some(bytes) = self.read(name)? {
                files.push(UsedFile {
                    name: name.to_string(),
                    bytes,
                    carried: name != INDEX_FILE,
                });
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// A file's content, where there is such a file. What a package carries is among its tensors, and not found here.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>, PackageError> {
        match self {
            Source::Embedded(contents) => {
                let found = contents.iter().find(|(found, _)| *found == name);
                Ok(found.map(|(_, bytes)| Cow::Borrowed(*bytes)))
            }
            Source::Packed(_) => Ok(None),
            Source::Directory(folder) => {
                let path = folder.join(name);
                match std::fs::read(&path) {
                    Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(PackageError::io(&path, error)),
                }
            }
        }
    }

    /// Reads one file whole and hashes it.
    pub fn hash(
        &self,
        file: &SourceFile,
        progress: &dyn Progress,
    ) -> Result<FileHashes, PackageError> {
        match self {
            Source::Directory(folder) => {
                let path = folder.join(&file.name);
                let open = std::fs::File::open(&path).map_err(|e| PackageError::io(&path, e))?;
                hash(&path, file.size, open, progress)
            }
            Source::Packed(path) => {
                let open = std::fs::File::open(path).map_err(|e| PackageError::io(path, e))?;
                hash(path, file.size, open, progress)
            }
            Source::Embedded(contents) => {
                let found = contents.iter().find(|(name, _)| *name == file.name);
                let bytes = found.map_or(&[][..], |(_, bytes)| bytes);
                hash(Path::new(&file.name), file.size, bytes, progress)
            }
        }
    }
}

/// Whether a file takes part in serving; folders of models hold other things too.
fn is_source(name: &str) -> bool {
    [".json", ".safetensors", ".jinja", ".model", ".txt"]
        .iter()
        .any(|end| name.ends_with(end))
        && !name.starts_with('.')
}

fn hash(
    path: &Path,
    size: u64,
    mut content: impl Read,
    progress: &dyn Progress,
) -> Result<FileHashes, PackageError> {
    let mut sha256 = sha2::Sha256::new();
    let mut git = sha1::Sha1::new();
    git.update(format!("blob {size}\0"));
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        let read = content
            .read(&mut buffer)
            .map_err(|error| PackageError::io(path, error))?;
        if read == 0 {
            break;
        }
        sha256.update(&buffer[..read]);
        git.update(&buffer[..read]);
        progress.advance(read as u64);
        total += read as u64;
    }
    if total != size {
        let message = format!("{total} bytes, expected {size}: the file changed while it was read");
        return Err(PackageError::header(path, message));
    }
    Ok(FileHashes {
        sha256: hex(&sha256.finalize()),
        git_blob: hex(&git.finalize()),
    })
}

/// SHA-256 of a content, in hexadecimal.
pub(crate) fn sha256(content: impl AsRef<[u8]>) -> String {
    hex(&sha2::Sha256::digest(content.as_ref()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    #[test]
    fn hashes_are_those_of_the_usual_tools() {
        let hashes = hash(Path::new("a"), 6, &b"hello\n"[..], &NoProgress).expect("in memory");
        // As printed by `sha256sum` and by `git hash-object`.
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(hashes.sha256, sha256);
        assert_eq!(hashes.git_blob, "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(FileHashes::of(b"hello\n"), hashes);
        assert!(hash(Path::new("a"), 5, &b"hello\n"[..], &NoProgress).is_err());
    }
}
