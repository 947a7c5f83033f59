//! Recomputes what a package says about itself: the hash of every tensor, those of its source files, and the weights
//! from the source. What can't be recomputed is listed, and must never be counted as a pass.

use crate::error::PackageError;
use crate::open::Package;
use crate::packed::{FILE_PREFIX, PACKER_REVISION, Packed};
use crate::progress::Progress;
use crate::provenance::{FileHashes, Source, SourceFile, sha256};
use crate::report::{Report, SourceVerdict};
use crate::weights::TensorView;
use std::path::Path;

/// What is wrong with a tensor of a package, if its bytes are not those that were packed.
pub(crate) fn changed(packed: &Packed, view: &TensorView<'_>) -> Option<String> {
    let expected = packed.tensors.get(view.name).map_or("", String::as_str);
    let found = sha256(view.bytes);
    (found != expected).then(|| {
        let (found, expected) = (
            format!("of sha256 {found}"),
            format!("{expected}, as it was packed"),
        );
        view.wrong(found, expected).to_string()
    })
}

impl Report {
    /// Compares the source files of a one-file package with those in `source`, and the weights with what packing them
    /// gives. Without a source, what the package carries is all that is looked at, and the rest goes to
    /// [`Report::unchecked`].
    ///
    /// # Errors
    /// If a file is there and can't be read.
    pub fn verify_sources(
        &mut self,
        package: &Package,
        source: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<(), PackageError> {
        let Some(packed) = &package.packed else {
            return Ok(());
        };
        let mut verdicts = Vec::new();
        let sizes = packed.sources.iter().map(|source| source.size);
        progress.begin("hashing source files (bytes)", sizes.sum());
        for file in &packed.sources {
            let verdict = match source {
                Some(folder) => compare(folder, &file.name, &file.hashes, progress)?,
                // Held to its hashes when the package was opened.
                None if file.carried => SourceVerdict::Same,
                None => SourceVerdict::Unchecked,
            };
            match verdict {
                SourceVerdict::Same => {}
                SourceVerdict::Unchecked => {
                    self.unchecked.push(format!("source file {}", file.name))
                }
                SourceVerdict::Changed => self.problems.push(format!(
                    "source file {} is not the one that was packed",
                    file.name
                )),
                SourceVerdict::Gone => self
                    .problems
                    .push(format!("source file {} is gone", file.name)),
            }
            verdicts.push(verdict);
        }
        progress.end();
        let all_same = verdicts
            .iter()
            .all(|verdict| *verdict == SourceVerdict::Same);
        if let Some(report) = &mut self.package {
            for (file, verdict) in report.sources.iter_mut().zip(verdicts) {
                file.verdict = Some(verdict);
            }
        }
        match source {
            Some(folder) if all_same => self.recompute(packed, folder, progress),
            _ => {
                let what = "whether the weights are what packing the source gives";
                self.unchecked.push(what.to_string());
                Ok(())
            }
        }
    }

    fn recompute(
        &mut self,
        packed: &Packed,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<(), PackageError> {
        if packed.packer.revision != PACKER_REVISION {
            let (theirs, what) = (
                packed.packer.revision,
                "whether the weights are what packing the source gives",
            );
            self.unchecked.push(format!(
                "{what}: packer {theirs} wrote them, this is {PACKER_REVISION}"
            ));
            return Ok(());
        }
        let again = Package::open(folder, progress)?.packed_tensors(progress)?;
        let own = packed.tensors.iter();
        let own = own.filter(|(name, _)| !name.starts_with(FILE_PREFIX));
        let mut num_own = 0;
        for (name, hash) in own {
            num_own += 1;
            if again.get(name) != Some(hash) {
                self.problems.push(format!(
                    "tensor {name} is not what packing the source gives"
                ));
            }
        }
        if num_own != again.len() {
            self.problems.push(format!(
                "{num_own} tensors of weights, expected the {} that packing the source gives",
                again.len()
            ));
        }
        Ok(())
    }
}

fn compare(
    folder: &Path,
    name: &str,
    expected: &FileHashes,
    progress: &dyn Progress,
) -> Result<SourceVerdict, PackageError> {
    let path = folder.join(name);
    let size = match std::fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(SourceVerdict::Gone);
        }
        Err(error) => return Err(PackageError::io(&path, error)),
    };
    let source = Source::Directory(folder.to_path_buf());
    let name = name.to_string();
    let found = source.hash(&SourceFile { name, size }, progress)?;
    Ok(match found == *expected {
        true => SourceVerdict::Same,
        false => SourceVerdict::Changed,
    })
}
