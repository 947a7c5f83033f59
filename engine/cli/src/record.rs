//! Recording as flags have it: where captures go, how much room they have, what is left out, who gets them. It must
//! never remove what another running server writes.

use crate::{exit::Failure, flags::MachineArgs, session::draw_seed};
use clap::ValueEnum;
use lockstep_capture::{FileId, Header, PackageId, Recorder, Redaction, Ring, RingOptions};
use lockstep_core::{EngineConfig, RejectedDrafts};
use lockstep_package::{NoProgress, Package};
use lockstep_server::Captures;
use lockstep_step::BackendLimits;
use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// What a server writes down.
#[derive(clap::Args, Debug)]
pub struct RecordArgs {
    /// Folder of captures, or off [default: $XDG_STATE_HOME/lockstep/captures].
    #[arg(long, value_name = "DIR|off")]
    captures: Option<PathBuf>,
    /// Room for captures; the oldest make way.
    #[arg(long, value_name = "MIB", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(4..))]
    captures_mib: u64,
    /// What captures leave out; without text masks can't be computed again, without tokens hardly anything.
    #[arg(long, value_enum, default_value_t = RedactionKind::None)]
    captures_without: RedactionKind,
    /// Records what each operation of the model computes as well, as digests, where the backend has them: a replay
    /// names layer and operation then. Steps take longer, and captures much more room.
    #[arg(long)]
    captures_ops: bool,
    /// Key for GET /captures/{x-request-id}; without one nobody gets any.
    #[arg(
        long,
        value_name = "KEY",
        env = "LOCKSTEP_ADMIN_KEY",
        hide_env_values = true
    )]
    admin_key: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RedactionKind {
    /// Nothing is left out.
    None,
    /// Text, tools, grammars and stop strings.
    Text,
    /// Token ids as well.
    Tokens,
}

/// What is recorded of a server's settings.
pub struct About<'a> {
    pub package: &'a Package,
    pub limits: BackendLimits,
    pub backend: String,
    pub engine: &'a EngineConfig,
    pub machine: &'a MachineArgs,
}

/// A recording under way.
pub struct Recording {
    /// What the server needs.
    pub captures: Captures,
    ring: Arc<Ring>,
    /// Held as long as somebody writes into the folder.
    _lock: File,
}

impl Recording {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.ring.folder()
    }

    /// Waits until all of it is on disk.
    pub fn flush(&self) {
        self.ring.flush();
    }
}

/// The file that whoever writes into a folder holds a lock of.
const LOCK: &str = "lock";

impl RecordArgs {
    /// Begins to record; None where nothing is to be.
    ///
    /// # Errors
    /// A folder that can't be written, or a key that is empty.
    pub fn begin(&self, about: &About<'_>) -> Result<Option<Recording>, Failure> {
        if self.admin_key.as_ref().is_some_and(String::is_empty) {
            let next = "leave it out, and nobody gets captures over HTTP";
            return Err(Failure::usage("the admin key is empty", next));
        }
        let parent = match &self.captures {
            Some(path) if path.as_os_str() == "off" => return Ok(None),
            Some(path) => path.clone(),
            None => match state_folder() {
                Some(path) => path,
                None => {
                    tracing::warn!("nothing is recorded: neither XDG_STATE_HOME nor HOME is set");
                    return Ok(None);
                }
            },
        };
        let fails = |error: io::Error| {
            let what = format!("--captures {}: {error}", parent.display());
            Failure::input(
                what,
                "name a folder that can be written, or say --captures off",
            )
        };
        let bytes_max = self.captures_mib << 20;
        make_room(&parent, bytes_max).map_err(fails)?;
        let begun = SystemTime::now().duration_since(UNIX_EPOCH);
        let begun = begun.map_or(0, |since| since.as_secs());
        let folder = parent.join(format!("{begun}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(fails)?;
        let lock = File::create(folder.join(LOCK)).map_err(fails)?;
        lock.lock().map_err(fails)?;
        let redaction = match self.captures_without {
            RedactionKind::None => Redaction::None,
            RedactionKind::Text => Redaction::Text,
            RedactionKind::Tokens => Redaction::Tokens,
        };
        let options = RingOptions {
            folder,
            bytes_max,
            waiting_bytes_max: 64 << 20,
        };
        let header = header(about, redaction, begun)?;
        let ring = Arc::new(Ring::begin(options, header).map_err(fails)?);
        let recorder = Recorder::new(ring.clone(), redaction, draw_seed()?);
        Ok(Some(Recording {
            captures: Captures {
                recorder,
                archive: ring.clone(),
                admin_keys: self.admin_key.iter().cloned().collect(),
                with_ops: self.captures_ops,
            },
            ring,
            _lock: lock,
        }))
    }
}

fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")));
    state.map(|state| state.join("lockstep/captures"))
}

/// Removes the oldest recordings that nobody writes any more, so that what is left of them has no more than this.
fn make_room(parent: &Path, bytes_max: u64) -> io::Result<()> {
    fs::create_dir_all(parent)?;
    let mut old = Vec::new();
    for entry in fs::read_dir(parent)? {
        let folder = entry?.path();
        // Only folders that a server has made.
        let Ok(lock) = File::open(folder.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            old.push((num_bytes(&folder), folder));
        }
    }
    old.sort_by(|a, b| a.1.cmp(&b.1));
    let mut total: u64 = old.iter().map(|(bytes, _)| bytes).sum();
    for (bytes, folder) in old {
        if total <= bytes_max {
            break;
        }
        fs::remove_dir_all(&folder)?;
        total -= bytes;
    }
    Ok(())
}

fn num_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.sum()
}

/// The option of a package that says how its weights are computed with.
pub const WEIGHTS: &str = "weights";

/// Files beyond this are known by their size alone: hashing them would hold up the start.
const HASHED_BYTES_MAX: u64 = 1 << 30;

/// A package by the content of its files.
///
/// # Errors
/// A file that can't be read.
pub fn package_id(package: &Package, options: Vec<(String, String)>) -> Result<PackageId, Failure> {
    let fails = |error| Failure::input(error, "`lockstep inspect --verify` looks at every file");
    let mut files = Vec::new();
    for file in package.source.files().map_err(fails)? {
        let sha256 = match file.size <= HASHED_BYTES_MAX {
            true => {
                package
                    .source
                    .hash(&file, &NoProgress)
                    .map_err(fails)?
                    .sha256
            }
            false => String::new(),
        };
        files.push(FileId {
            name: file.name,
            size: file.size,
            sha256,
        });
    }
    Ok(PackageId {
        name: package.name.clone(),
        files,
        options,
    })
}

fn header(about: &About<'_>, redaction: Redaction, begun: u64) -> Result<Header, Failure> {
    let config = about.engine;
    let on = |on: bool| if on { "on" } else { "off" };
    let rejected = match config.rejected_drafts {
        RejectedDrafts::Trim => "trim",
        RejectedDrafts::Pad => "pad",
    };
    let own = [
        ("max_num_seqs", config.max_num_seqs.to_string()),
        (
            "max_num_batched_tokens",
            config.max_num_batched_tokens.to_string(),
        ),
        ("chunk_tokens_max", config.chunk_tokens_max.to_string()),
        ("speculate", config.speculation.to_string()),
        ("prefix_cache", on(config.prefix_cache).to_string()),
        ("overlap", on(config.overlap).to_string()),
        ("rejected_drafts", rejected.to_string()),
        ("checked", on(config.checked).to_string()),
        (
            "static_buffers",
            on(about.machine.static_buffers).to_string(),
        ),
        ("threads", about.machine.num_threads().to_string()),
    ];
    let own = own
        .into_iter()
        .map(|(name, value)| (name.to_string(), value));
    let mut settings: Vec<(String, String)> = own.collect();
    settings.sort();
    let weights = about.machine.weights.name().to_string();
    let options = vec![(WEIGHTS.to_string(), weights)];
    Ok(Header {
        build: format!("lockstep {}", env!("CARGO_PKG_VERSION")),
        package: package_id(about.package, options)?,
        backend: about.backend.clone(),
        limits: about.limits,
        settings,
        redaction,
        begun,
        is_whole: true,
    })
}
