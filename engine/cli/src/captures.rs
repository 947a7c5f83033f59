//! Captures as commands read them: a file, or the folder of a recording. It must never take a part of one for the
//! whole.

use crate::exit::Failure;
use lockstep_capture::{Capture, Contents, RingError, read, read_folder};
use std::{fs, path::Path};

/// Reads a capture, as far as it can be read. What is wrong with it is said on standard error.
///
/// # Errors
/// If it is none.
pub fn open(path: &Path) -> Result<Capture, Failure> {
    let contents = contents(path)?;
    let name = path.display();
    if let Some(damage) = &contents.damage {
        let how = if damage.is_cut {
            "cut short"
        } else {
            "damaged"
        };
        eprintln!("{name} is {how} at {damage}; what comes before is read");
    }
    let capture = Capture::new(contents);
    for odd in &capture.oddities {
        eprintln!("{name}: {odd}");
    }
    Ok(capture)
}

fn contents(path: &Path) -> Result<Contents, Failure> {
    let name = path.display();
    let next = "give a file from GET /captures/{x-request-id}, or the folder of a recording";
    if path.is_dir() {
        return read_folder(path).map_err(|error| match error {
            RingError::Unknown => Failure::input(format!("{name} holds no captures"), next),
            error => Failure::input(error, next),
        });
    }
    let bytes = fs::read(path).map_err(|error| Failure::input(format!("{name}: {error}"), next))?;
    read(&bytes).map_err(|error| Failure::input(format!("{name}: {error}"), next))
}
