//! Compares one pin with its upstream and with our own copy. Only what was read and has both pinned hashes is
//! the same; it must never call anything so for want of a look.

use super::diff::diff;
use super::file::Pin;
use super::upstream::{Upstream, read_file};
use lockstep_package::FileHashes;
use serde::Serialize;
use std::path::Path;

/// What became of a pinned file at its upstream's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It has both pinned hashes.
    Same,
    /// It is another file now.
    Moved,
    /// The head has no such file.
    Gone,
    /// Nobody knows.
    Unchecked,
}

/// What became of our copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Copy {
    /// It has both pinned hashes.
    AsPinned,
    /// It was edited here.
    Changed,
    /// It is not there.
    Gone,
    /// It can't be read.
    Unchecked,
}

/// Our copy, looked at.
#[derive(Clone, Debug, Serialize)]
pub struct OwnCopy {
    pub verdict: Copy,
    /// Why it could not be read.
    pub reason: Option<String>,
    /// What it is, where it is not as pinned.
    pub hashes: Option<FileHashes>,
    /// From what was pinned to what it is, where what was pinned is at hand.
    pub diff: Option<String>,
}

/// A pin, looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Checked<'a> {
    pub path: &'a str,
    pub source: &'a str,
    #[serde(rename = "ref")]
    pub reference: &'a str,
    pub file: &'a str,
    pub note: Option<&'a str>,
    pub verdict: Verdict,
    /// Why it could not be checked, or why there is no difference to show.
    pub reason: Option<String>,
    /// The commit at the upstream's head.
    pub head: Option<String>,
    pub pinned: &'a FileHashes,
    /// What the head has.
    pub upstream: Option<FileHashes>,
    /// From what was pinned to what the head has.
    pub diff: Option<String>,
    pub own_copy: OwnCopy,
}

/// Looks at one pin; `folder` is that of the list.
pub fn check<'a>(pin: &'a Pin, folder: &Path, upstream: Result<&Upstream, String>) -> Checked<'a> {
    let own = read_file(&folder.join(&pin.path));
    let mut checked = Checked {
        path: &pin.path,
        source: &pin.source,
        reference: &pin.reference,
        file: &pin.file,
        note: pin.note.as_deref(),
        verdict: Verdict::Unchecked,
        reason: None,
        head: None,
        pinned: &pin.hashes,
        upstream: None,
        diff: None,
        own_copy: own_copy(pin, &own),
    };
    let found = upstream
        .clone()
        .and_then(|upstream| compare(pin, upstream, &mut checked));
    let content = found.unwrap_or_else(|reason| {
        checked.verdict = Verdict::Unchecked;
        checked.reason = Some(reason);
        None
    });
    // What was pinned is what has its hashes: our copy, what the head has, or a blob of the past.
    let is_pinned = |bytes: &Vec<u8>| FileHashes::of(bytes) == pin.hashes;
    let own = own.ok().flatten();
    let past = || upstream.ok()?.blob(&pin.hashes.git_blob);
    let pinned = own.clone().filter(is_pinned);
    let pinned = pinned.or_else(|| content.clone().filter(is_pinned));
    let pinned = pinned.or_else(|| past().filter(is_pinned));
    match (&pinned, checked.verdict) {
        (Some(pinned), Verdict::Moved) => {
            let now = content.unwrap_or_default();
            checked.diff = Some(diff(("pinned", pinned), ("upstream", &now)));
        }
        (None, Verdict::Moved) => {
            let reason = "what was pinned is nowhere at hand, so the difference can't be shown";
            checked.reason = Some(reason.to_owned());
        }
        _ => {}
    }
    if let (Some(pinned), Some(own), Copy::Changed) = (&pinned, &own, checked.own_copy.verdict) {
        checked.own_copy.diff = Some(diff(("pinned", pinned), ("own copy", own)));
    }
    checked
}

/// Fills in what the head has, and returns it.
fn compare(
    pin: &Pin,
    upstream: &Upstream,
    checked: &mut Checked<'_>,
) -> Result<Option<Vec<u8>>, String> {
    if let Some(fixed) = upstream.fixed(&pin.reference, &pin.file)? {
        let hashes = fixed.content.as_deref().map(FileHashes::of);
        if hashes.as_ref() != Some(&pin.hashes) {
            let found = hashes.map_or("no such file".to_owned(), |hashes| {
                format!("git blob {}, sha256 {}", hashes.git_blob, hashes.sha256)
            });
            return Err(format!(
                "the pin contradicts itself: {} has {found} as {}, not what is pinned",
                pin.reference, pin.file
            ));
        }
    }
    let found = upstream.head(&pin.reference, &pin.file)?;
    checked.head = found.head;
    let Some(content) = found.content else {
        checked.verdict = Verdict::Gone;
        return Ok(None);
    };
    let hashes = FileHashes::of(&content);
    let (blob, sha) = (
        hashes.git_blob == pin.hashes.git_blob,
        hashes.sha256 == pin.hashes.sha256,
    );
    checked.upstream = Some(hashes);
    checked.verdict = match (blob, sha) {
        (true, true) => Verdict::Same,
        (false, false) => Verdict::Moved,
        _ => {
            let same = if blob { "git_blob" } else { "sha256" };
            return Err(format!(
                "the pin contradicts itself: only its {same} is that of the upstream's file"
            ));
        }
    };
    Ok(Some(content))
}

fn own_copy(pin: &Pin, own: &Result<Option<Vec<u8>>, String>) -> OwnCopy {
    let mut copy = OwnCopy {
        verdict: Copy::Gone,
        reason: None,
        hashes: None,
        diff: None,
    };
    match own {
        Ok(None) => {}
        Err(reason) => {
            copy.verdict = Copy::Unchecked;
            copy.reason = Some(reason.clone());
        }
        Ok(Some(content)) => {
            let hashes = FileHashes::of(content);
            if hashes == pin.hashes {
                copy.verdict = Copy::AsPinned;
            } else {
                copy.verdict = Copy::Changed;
                copy.hashes = Some(hashes);
            }
        }
    }
    copy
}
