//! Where inputs lie: `fuzz/corpus/TARGET` and `fuzz/crashes/TARGET`, one input a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// An input, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// The folder of this crate, as it was when the program was built.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Inputs that reach many different places, kept in the repository.
pub fn corpus(target: &str) -> io::Result<Vec<Input>> {
    folder(&home().join("corpus").join(target))
}

/// Inputs that failed once, and must not again.
pub fn crashes(target: &str) -> io::Result<Vec<Input>> {
    folder(&home().join("crashes").join(target))
}

/// Keeps an input that failed, under a name that is its content's.
///
/// # Errors
/// If it can't be written.
pub fn keep_crash(target: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let folder = home().join("crashes").join(target);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{:016x}", digest(bytes)));
    fs::write(&path, bytes)?;
    Ok(path)
}

/// All files of a folder in order of their names; none if there is no folder.
fn folder(path: &Path) -> io::Result<Vec<Input>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_file() && !is_hidden {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path)?;
        Ok(Input { path, bytes })
    };
    paths.into_iter().map(read).collect()
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
