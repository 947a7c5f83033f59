//! Revisions of the packer that are known to have written bad packages, by name.
//!
//! An advisory is added when a fault is found, together with the fix and a higher
//! [`PACKER_REVISION`](crate::PACKER_REVISION), and is never taken away: packages live longer than programs. What
//! computes refuses such a package; only a user who names the advisory goes on, and that is kept with the package.

use crate::packed::Packer;

/// Something that is known to be wrong with packages of some revisions of the packer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Advisory {
    /// What it is called, in errors and in `--allow-advisory`.
    pub name: &'static str,
    /// The first revision that it is about.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// What is wrong, for the person who meets it.
    pub what: &'static str,
}

/// All advisories, the oldest first.
pub const ADVISORIES: &[Advisory] = &[Advisory {
    name: "drill",
    first: 0,
    last: 0,
    what: "no packer ever had revision 0: the package was made to rehearse a refusal",
}];

/// The advisories that are about what this packer wrote.
pub(crate) fn about(packer: &Packer) -> Vec<&'static Advisory> {
    let revision = packer.revision;
    let is_about = |advisory: &&Advisory| (advisory.first..=advisory.last).contains(&revision);
    ADVISORIES.iter().filter(is_about).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_a_name_of_its_own_and_spares_the_packer_of_today() {
        let names: BTreeSet<&str> = ADVISORIES.iter().map(|advisory| advisory.name).collect();
        assert_eq!(names.len(), ADVISORIES.len());
        for advisory in ADVISORIES {
            let is_plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(advisory.name.bytes().all(is_plain), "{}", advisory.name);
            assert!(advisory.first <= advisory.last, "{}", advisory.name);
        }
        assert_eq!(about(&Packer::this()), Vec::<&Advisory>::new());
        let old = Packer {
            revision: 0,
            ..Packer::this()
        };
        assert_eq!(about(&old), [&ADVISORIES[0]]);
    }
}
