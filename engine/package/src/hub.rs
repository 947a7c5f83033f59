//! Fetching a model by name from a hub, into a cache that other tools share.
//!
//! Only what serving needs is downloaded, and all of it from one commit. Names that come from the
//! hub are never used as paths before they were checked.

use crate::error::PackageError;
use crate::progress::Progress;
use crate::provenance::{INDEX_FILE, SMALL_FILES};
use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use std::path::{Path, PathBuf};

/// Where models are fetched from unless the caller says otherwise.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Fetches `organisation/name` at `revision` (a branch, tag or commit) and returns the folder to
/// open.
///
/// Files are kept under `cache`, laid out like the hub's own cache, and are not fetched twice. When
/// the hub can't be reached, a model that is whole in the cache is used as it is. Fails with the
/// address and the reason.
pub fn fetch(
    name: &str,
    revision: &str,
    cache: &Path,
    endpoint: &str,
    progress: &dyn Progress,
) -> Result<PathBuf, PackageError> {
    let wrong = |message: String| PackageError::Hub {
        name: name.to_string(),
        message,
    };
    check_name(name, revision).map_err(wrong)?;
    let builder = ApiBuilder::from_cache(Cache::new(cache.to_path_buf()));
    let api = builder
        .with_endpoint(endpoint.trim_end_matches('/').to_string())
        .with_progress(false)
        .build()
        .map_err(|error| wrong(error.to_string()))?;
    let named = |revision: &str| {
        Repo::with_revision(name.to_string(), RepoType::Model, revision.to_string())
    };
    let cached = Cache::new(cache.to_path_buf()).repo(named(revision));
    let info = match api.repo(named(revision)).info() {
        Ok(info) => info,
        Err(error) => {
            let config = cached.get("config.json");
            let folder = config
                .as_deref()
                .and_then(Path::parent)
                .filter(|folder| is_whole(folder));
            return folder.map(Path::to_path_buf).ok_or_else(|| {
                wrong(format!(
                    "can't be fetched from {endpoint} at {revision}: {error}"
                ))
            });
        }
    };
    if info.sha.len() < 7 || !info.sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong(format!(
            "{endpoint} calls its commit {:?}, expected hex",
            info.sha
        )));
    }
    let siblings: Vec<&str> = info
        .siblings
        .iter()
        .map(|file| file.rfilename.as_str())
        .collect();
    let wanted = wanted(&siblings);
    if !wanted.contains(&"config.json") || !wanted.iter().any(|file| is_weights(file)) {
        let found = siblings.join(", ");
        let expected = "config.json and .safetensors weights";
        return Err(wrong(format!(
            "{endpoint} has [{found}], expected {expected}"
        )));
    }
    // By commit, so that a branch that moves meanwhile can't mix two versions.
    let repo = api.repo(named(&info.sha));
    progress.begin("fetching files", wanted.len() as u64);
    let folder = download(&repo, &wanted, endpoint, progress).map_err(wrong);
    progress.end();
    let folder = folder?;
    cached
        .create_ref(&info.sha)
        .map_err(|error| PackageError::io(cache, error))?;
    Ok(folder)
}

/// Downloads what isn't cached; the folder that holds `config.json`.
fn download(
    repo: &ApiRepo,
    wanted: &[&str],
    endpoint: &str,
    progress: &dyn Progress,
) -> Result<PathBuf, String> {
    let mut folder = None;
    for file in wanted {
        let path = repo
            .get(file)
            .map_err(|error| format!("{file} of {endpoint}: {error}"))?;
        progress.advance(1);
        if *file == "config.json" {
            folder = path.parent().map(Path::to_path_buf);
        }
    }
    folder.ok_or_else(|| "config.json has no folder".to_string())
}

/// The files to fetch, of those that the hub has. Names with a path are left alone: subfolders hold
/// other formats.
fn wanted<'a>(siblings: &[&'a str]) -> Vec<&'a str> {
    let sharded = siblings.contains(&INDEX_FILE);
    let keep = |file: &str| {
        if !is_weights(file) {
            return SMALL_FILES.contains(&file) || file == INDEX_FILE;
        }
        // A checkpoint that was sharded may still have other weights beside, which would be read in
        // vain.
        let shard = file.starts_with("model-") || file.starts_with("model.safetensors-");
        file == "mtp.safetensors"
            || if sharded {
                shard
            } else {
                file == "model.safetensors"
            }
    };
    siblings.iter().copied().filter(|file| keep(file)).collect()
}

fn is_weights(file: &str) -> bool {
    let plain = file
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    plain && file.ends_with(".safetensors") && !file.starts_with('.')
}

/// Whether a cached snapshot has all that opening it would need.
fn is_whole(folder: &Path) -> bool {
    let weights = folder.join("model.safetensors").is_file() || folder.join(INDEX_FILE).is_file();
    weights && folder.join("config.json").is_file() && folder.join("tokenizer.json").is_file()
}

fn check_name(name: &str, revision: &str) -> Result<(), String> {
    let plain = |part: &str, also: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
        !part.is_empty()
            && part.chars().all(known)
            && !part.starts_with('.')
            && !part.contains("..")
    };
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() != 2 || !parts.iter().all(|part| plain(part, "-_.")) {
        return Err("isn't the name of a model, expected organisation/name".to_string());
    }
    if !plain(revision, "-_./") {
        return Err(format!(
            "revision is {revision:?}, expected a branch, tag or commit"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
