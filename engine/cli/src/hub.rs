//! Where a model named `org/name` is fetched to and from: flags, then the environment that other Hugging
//! Face tools read, then their defaults. It must never fetch by itself; `lockstep-package` does.

use crate::{exit::Failure, flags::ModelArgs, terminal::Bars};
use lockstep_package::hub;
use std::{
    env,
    path::{Path, PathBuf},
};

/// Fetches a model, unless the cache has it, and says where it lies.
///
/// # Errors
/// What the hub said, and what to try.
pub fn fetch(name: &str, args: &ModelArgs, bars: &Bars) -> Result<PathBuf, Failure> {
    let endpoint = args
        .hub_endpoint
        .as_deref()
        .unwrap_or(hub::DEFAULT_ENDPOINT);
    let cache = match &args.cache_dir {
        Some(folder) => folder.clone(),
        None => default_cache(|name| env::var_os(name).map(PathBuf::from)).ok_or_else(|| {
            Failure::usage(
                "there is no home directory to cache models in",
                "give --cache-dir",
            )
        })?,
    };
    hub::fetch(name, &args.revision, &cache, endpoint, bars).map_err(|error| {
        let next = format!(
            "check the name and --revision, or that {endpoint} can be reached; a directory that is \
             already here is given as --model ./DIR"
        );
        Failure::input(error, next)
    })
}

/// The cache of other Hugging Face tools.
fn default_cache(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let own = |name: &str| variable(name).filter(|path| path != Path::new(""));
    own("HF_HUB_CACHE")
        .or_else(|| own("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| own("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| own("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(set: &[(&str, &str)]) -> Option<PathBuf> {
        default_cache(|name| {
            set.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| PathBuf::from(value))
        })
    }

    #[test]
    fn the_nearest_variable_wins() {
        let home = ("HOME", "/h");
        assert_eq!(cache(&[]), None);
        assert_eq!(cache(&[home]), Some("/h/.cache/huggingface/hub".into()));
        assert_eq!(cache(&[home, ("HF_HOME", "/x")]), Some("/x/hub".into()));
        assert_eq!(
            cache(&[home, ("HF_HOME", "/x"), ("HF_HUB_CACHE", "/y")]),
            Some("/y".into())
        );
        assert_eq!(
            cache(&[home, ("HF_HOME", "")]),
            Some("/h/.cache/huggingface/hub".into())
        );
    }
}
