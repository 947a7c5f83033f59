//! Runs the check of a bisection: writes a settings file, starts a shell, and reads from its exit code what the
//! trial came to. It must never take a check that broke for a verdict.

use super::search::Verdict;
use crate::exit::Failure;
use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Instant,
};

/// The environment variable that holds the path of the trial's settings file.
pub const SETTINGS_VARIABLE: &str = "LOCKSTEP_SETTINGS";

/// The most bytes at the end of a check's output that are looked at for its last line.
const LAST_LINE_BYTES_MAX: u64 = 4096;
/// The most characters of that line that are shown.
const LAST_LINE_CHARS_MAX: usize = 160;

/// A check, and where its files lie.
pub struct Checker {
    command: String,
    folder: PathBuf,
    keep: bool,
}

/// What a trial came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The verdict.
    pub verdict: Verdict,
    /// How the check ended, as in `exit 0`.
    pub how: String,
    /// The last line that it wrote.
    pub last_line: String,
    /// How long it took.
    pub seconds: f64,
}

impl Checker {
    /// Makes the folder for settings files and outputs: `keep`, or one that goes with the checker.
    ///
    /// # Errors
    /// A folder that can't be made, or that holds something already.
    pub fn new(command: &str, keep: Option<&Path>) -> Result<Checker, Failure> {
        let folder = match keep {
            Some(folder) => folder.to_path_buf(),
            None => std::env::temp_dir().join(format!("lockstep-bisect-{}", std::process::id())),
        };
        let failure = |what: String| {
            let next = "give --keep a folder that is new or empty, in a place that can be written";
            Failure::usage(format!("{}: {what}", folder.display()), next)
        };
        fs::create_dir_all(&folder).map_err(|error| failure(error.to_string()))?;
        let mut entries = fs::read_dir(&folder).map_err(|error| failure(error.to_string()))?;
        if entries.next().is_some() {
            return Err(failure("the folder for trials is not empty".to_owned()));
        }
        // The check may run in a folder of its own.
        let folder = folder
            .canonicalize()
            .map_err(|error| failure(error.to_string()))?;
        Ok(Checker {
            command: command.to_owned(),
            folder,
            keep: keep.is_some(),
        })
    }

    /// Runs the check on these settings; `number` names the files.
    ///
    /// # Errors
    /// Files that can't be written, or no shell. A check that fails to run is a verdict.
    pub fn run(&self, number: usize, settings: &str) -> Result<Ran, Failure> {
        let file = |kind: &str| self.folder.join(format!("trial-{number:04}.{kind}"));
        let (settings_path, log_path) = (file("toml"), file("log"));
        let failure =
            |path: &Path, error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
        fs::write(&settings_path, settings).map_err(|error| failure(&settings_path, error))?;
        let log = fs::File::create(&log_path).map_err(|error| failure(&log_path, error))?;
        let errors = log.try_clone().map_err(|error| failure(&log_path, error))?;
        let command = self.command.replace("{}", &quoted(&settings_path));
        let start = Instant::now();
        let status = Command::new("sh")
            .args(["-c", &command])
            .env(SETTINGS_VARIABLE, &settings_path)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .status()
            .map_err(|error| failure(Path::new("sh"), error))?;
        let (verdict, how) = verdict(status);
        Ok(Ran {
            verdict,
            how,
            last_line: last_line(&log_path).unwrap_or_default(),
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        if !self.keep {
            // What stays behind lies in the folder for such things.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// 0 is good and 1 is bad; whatever else happened, the check could not say.
fn verdict(status: ExitStatus) -> (Verdict, String) {
    match status.code() {
        Some(0) => (Verdict::Good, "exit 0".to_owned()),
        Some(1) => (Verdict::Bad, "exit 1".to_owned()),
        Some(code) => (Verdict::Unjudged, format!("exit {code}")),
        // Without a code it was a signal, which the status names.
        None => (Verdict::Unjudged, status.to_string()),
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    match text.chars().all(plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// The last line of an output that has anything on it.
fn last_line(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LAST_LINE_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let printable = line
        .unwrap_or("")
        .trim()
        .chars()
        .filter(|c| !c.is_control());
    Ok(printable.take(LAST_LINE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_verdicts() {
        let folder = tempfile::tempdir().expect("a folder");
        let keep = folder.path().join("with space's");
        let rows = [
            ("true", Verdict::Good, "exit 0"),
            ("exit 1", Verdict::Bad, "exit 1"),
            ("exit 2", Verdict::Unjudged, "exit 2"),
            ("no-such-program-at-all", Verdict::Unjudged, "exit 127"),
            ("kill -9 $$", Verdict::Unjudged, "signal: 9"),
            ("grep -q 'a = 1' {}", Verdict::Good, "exit 0"),
            ("grep -q 'a = 2' {}", Verdict::Bad, "exit 1"),
            (
                "grep -q 'a = 2' \"$LOCKSTEP_SETTINGS\"",
                Verdict::Bad,
                "exit 1",
            ),
        ];
        for (idx, (command, verdict, how)) in rows.into_iter().enumerate() {
            let keep = keep.join(idx.to_string());
            let checker = Checker::new(command, Some(&keep)).expect("a folder");
            let ran = checker.run(1, "a = 1\n").expect("it runs");
            assert_eq!(ran.verdict, verdict, "{command}: {ran:?}");
            assert!(ran.how.starts_with(how), "{command}: {ran:?}");
            drop(checker);
            assert!(keep.join("trial-0001.toml").exists(), "it was to be kept");
            let again = Checker::new(command, Some(&keep)).map(drop);
            assert!(again.is_err_and(|failure| failure.what.contains("not empty")));
        }
    }

    #[test]
    fn the_last_line_is_shown_and_the_folder_goes() {
        let checker = Checker::new("echo one; echo ' two \x1b[31m' >&2; echo", None);
        let checker = checker.expect("a folder");
        let ran = checker.run(7, "").expect("it runs");
        assert_eq!(ran.last_line, "two [31m");
        let folder = checker.folder.clone();
        assert!(folder.join("trial-0007.log").exists());
        drop(checker);
        assert!(!folder.exists());
    }
}
