//! Reads a file at the head of an upstream that lies here: a git directory, through the `git` program, or a
//! folder of files. It must never fetch, write, or take what it could not read for something that is gone.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a source lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// A git directory, bare or with files beside it.
    Git {
        /// What `git` is told: `-C FOLDER` or `--git-dir FOLDER`.
        place: [String; 2],
    },
    /// A folder of files.
    Tree(PathBuf),
}

/// What the head of an upstream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The commit, where there are commits.
    pub head: Option<String>,
    /// The file; None where the head has none by that name.
    pub content: Option<Vec<u8>>,
}

impl Upstream {
    /// Tells a git directory from a folder of files.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn open(path: &Path) -> Result<Upstream, String> {
        if !path.is_dir() {
            return Err(format!("{}: there is no such folder", path.display()));
        }
        let text = path.to_string_lossy().into_owned();
        let is_git = path.join("HEAD").is_file() && path.join("objects").is_dir();
        Ok(if path.join(".git").exists() {
            Upstream::Git {
                place: ["-C".to_owned(), text],
            }
        } else if is_git {
            Upstream::Git {
                place: ["--git-dir".to_owned(), text],
            }
        } else {
            Upstream::Tree(path.to_path_buf())
        })
    }

    /// What the head of the branch `reference` has as `file`. Where that is a tag or a commit, the head is the
    /// upstream's own.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn head(&self, reference: &str, file: &str) -> Result<Found, String> {
        match self {
            Upstream::Tree(folder) => Ok(Found {
                head: None,
                content: read_file(&folder.join(file))?,
            }),
            Upstream::Git { .. } => {
                let head = self.head_commit(reference)?;
                let content = self.file_at(&head, file)?;
                Ok(Found {
                    head: Some(head),
                    content,
                })
            }
        }
    }

    /// What a tag or commit has as `file`: it never moves, so a pin must agree with it. None for a branch, for a
    /// commit that is not here, and for a folder of files.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn fixed(&self, reference: &str, file: &str) -> Result<Option<Found>, String> {
        if matches!(self, Upstream::Tree(_)) || self.branch(reference)?.is_some() {
            return Ok(None);
        }
        let Some(commit) = self.commit(reference)? else {
            return Ok(None);
        };
        let content = self.file_at(&commit, file)?;
        Ok(Some(Found {
            head: Some(commit),
            content,
        }))
    }

    /// A blob by its id, where it is here.
    pub fn blob(&self, id: &str) -> Option<Vec<u8>> {
        match self {
            Upstream::Tree(_) => None,
            Upstream::Git { .. } => self.git(&["cat-file", "blob", id]).ok()?.1,
        }
    }

    fn head_commit(&self, reference: &str) -> Result<String, String> {
        if let Some(head) = self.branch(reference)? {
            return Ok(head);
        }
        // A commit that was not fetched is no mistake; a name that means nothing here is.
        let is_id = reference.len() == 40 && reference.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_id && self.commit(reference)?.is_none() {
            return Err(format!("ref {reference} is no branch, tag or commit there"));
        }
        for head in ["refs/remotes/origin/HEAD", "HEAD"] {
            if let Some(commit) = self.commit(head)? {
                return Ok(commit);
            }
        }
        Err("it has no commit at its head".to_owned())
    }

    /// The head of a branch. Where the upstream is somebody's clone, what it last fetched comes first.
    fn branch(&self, reference: &str) -> Result<Option<String>, String> {
        for place in ["refs/remotes/origin", "refs/heads"] {
            if let Some(commit) = self.commit(&format!("{place}/{reference}"))? {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    fn commit(&self, name: &str) -> Result<Option<String>, String> {
        let name = format!("{name}^{{commit}}");
        let (_, out) = self.git(&["rev-parse", "--verify", "--quiet", &name])?;
        Ok(out.map(|out| String::from_utf8_lossy(&out).trim().to_owned()))
    }

    fn file_at(&self, commit: &str, file: &str) -> Result<Option<Vec<u8>>, String> {
        let args = ["ls-tree", "-z", "--full-tree", commit, "--", file];
        let listed = self.git(&args)?;
        let listed = listed.1.ok_or_else(|| listed.0.clone())?;
        if listed.is_empty() {
            return Ok(None);
        }
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let fields: Vec<&str> = listed.split([' ', '\t']).take(3).collect();
        let [mode, "blob", id] = fields[..] else {
            return Err(format!(
                "{file} is no file there but a folder or a submodule"
            ));
        };
        if mode == "120000" {
            return Err(format!("{file} is a link there: pin what it leads to"));
        }
        let (complaint, content) = self.git(&["cat-file", "blob", id])?;
        content.map(Some).ok_or(complaint)
    }

    /// What git printed; nothing where it ended with 1, which is its way to say no. The first part is what it
    /// complained about.
    fn git(&self, args: &[&str]) -> Result<(String, Option<Vec<u8>>), String> {
        let Upstream::Git { place } = self else {
            return Err("no git directory".to_owned());
        };
        let mut command = Command::new("git");
        command.args(place).args(args);
        // What surrounds this program must not lead git elsewhere.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        // A clone may lack objects, which git would fetch by itself.
        command
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("LC_ALL", "C")
            .stdin(std::process::Stdio::null());
        let output = command
            .output()
            .map_err(|error| format!("the git program can't be started: {error}"))?;
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.code() {
            Some(0) => Ok((complaint, Some(output.stdout))),
            Some(1) => Ok((complaint, None)),
            _ => Err(format!("git {}: {complaint}", args[0])),
        }
    }
}

/// A file's content; None where there is none.
///
/// # Errors
/// If it is there and can't be read.
pub fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
