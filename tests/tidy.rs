//! The repository's habits, as tests: who may import whom, what each file must begin with, how long a
//! file, a function and a line may grow, words that are forbidden in a place, and documents that must
//! move together with code. A check here must never pass for want of anything to look at.

mod documents;
mod imports;
mod sources;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder that holds the workspace.
fn root() -> PathBuf {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = cli
        .ancestors()
        .nth(2)
        .expect("engine/cli lies two folders below the root");
    root.to_path_buf()
}

fn read(path: &str) -> String {
    let full = root().join(path);
    fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A source file, by its path from the root.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
    }

    /// The numbered lines of the product: none of a test file, and otherwise those before the tests that
    /// end a file.
    fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self
            .text
            .find("\n#[cfg(test)]\nmod ")
            .unwrap_or(self.text.len());
        let end = if self.is_test() { 0 } else { tests };
        self.text[..end]
            .lines()
            .enumerate()
            .map(|(idx, line)| (idx + 1, line))
    }

    /// All numbered lines.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(idx, line)| (idx + 1, line))
    }
}

/// Every Rust source of the repository.
fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for top in ["engine", "backends", "sim", "fuzz", "tests"] {
        if root.join(top).is_dir() {
            walk(&root, &root.join(top), &mut found);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 40, "only {} sources found", found.len());
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let path = entry.expect("a readable folder entry").path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(root, &path, found);
            }
        } else if name.ends_with(".rs") {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let path = path.strip_prefix(root).expect("below the root");
            let path = path.to_string_lossy().replace('\\', "/");
            found.push(Source { path, text });
        }
    }
}

/// Fails with every complaint at once, so that one run shows all there is to mend.
fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
