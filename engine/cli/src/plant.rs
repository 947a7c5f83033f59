//! Switches a planted fault on, for demonstrations: `LOCKSTEP_PLANT` names it. It is part of builds with
//! `--cfg planted` alone (`cargo planted-build`), and must never be of any other: no program that serves can be made
//! to lie.

use crate::exit::Failure;
use lockstep_step::planted::{Planted, set};

/// The variable that names a fault.
const VARIABLE: &str = "LOCKSTEP_PLANT";

/// Switches the fault on that the environment names, if any.
///
/// # Errors
/// If there is no fault of this name.
pub fn plant() -> Result<(), Failure> {
    let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let fault = Planted::ALL.iter().find(|fault| name == fault.id());
    let fault = fault.ok_or_else(|| {
        Failure::usage(
            format!("{VARIABLE}={} names no planted fault", name.display()),
            "docs/planted-faults.md lists them, such as accept-count-zeroes-conv",
        )
    })?;
    set(Some(*fault));
    eprintln!(
        "warning: the fault {} is planted: answers are wrong on purpose",
        fault.id()
    );
    Ok(())
}
