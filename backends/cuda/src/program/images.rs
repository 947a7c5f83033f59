//! Kernels that were compiled before the program was built, for machines that have no compiler.

use sha2::{Digest, Sha256};

/// A file's binary for one architecture.
pub(super) struct Image {
    /// The file, without `.cu`.
    pub(super) file: &'static str,
    /// Such as `sm_80`.
    pub(super) architecture: &'static str,
    /// SHA-256 of the text that it was made of, in hexadecimal.
    pub(super) digest: &'static str,
    /// The binary.
    pub(super) cubin: &'static [u8],
}

/// Those that were taken in; none unless the build was told to.
pub(super) const IMAGES: &[Image] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The binary of a text for a device: of its own architecture, or of the latest earlier one of the same major
/// version, which such a device runs too.
pub(super) fn find(
    images: &[Image],
    file: &str,
    text: &str,
    capability: (i32, i32),
) -> Option<&'static [u8]> {
    let digest: String = Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let own = images
        .iter()
        .filter(|image| image.file == file && image.digest == digest);
    let fitting = own.filter_map(|image| {
        let number = image.architecture.strip_prefix("sm_")?;
        // One with instructions of its own runs on its own devices only.
        let (number, is_own) = match number.strip_suffix('a') {
            Some(number) => (number, true),
            None => (number, false),
        };
        let number: i32 = number.parse().ok()?;
        let (major, minor) = (number / 10, number % 10);
        let runs = match is_own {
            true => (major, minor) == capability,
            false => major == capability.0 && minor <= capability.1,
        };
        runs.then_some((minor, image.cubin))
    });
    fitting
        .max_by_key(|(minor, _)| *minor)
        .map(|(_, cubin)| cubin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_chosen_by_text_and_device() {
        // SHA-256 of "x".
        let digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
        let image = |file, architecture, digest, cubin| Image {
            file,
            architecture,
            digest,
            cubin,
        };
        let images = [
            image("norm", "sm_80", digest, &b"80"[..]),
            image("norm", "sm_86", digest, b"86"),
            image("norm", "sm_90a", digest, b"90a"),
            image("norm", "sm_120", digest, b"120"),
            image("norm", "sm_75", "of another text", b"75"),
        ];
        let of = |capability| find(&images, "norm", "x", capability);
        assert_eq!(of((8, 0)), Some(&b"80"[..]));
        assert_eq!(of((8, 9)), Some(&b"86"[..]));
        assert_eq!(of((9, 0)), Some(&b"90a"[..]));
        assert_eq!(of((9, 1)), None, "sm_90a runs on nothing later");
        assert_eq!(of((12, 1)), Some(&b"120"[..]));
        assert_eq!(of((10, 0)), None, "another major version");
        assert_eq!(of((7, 5)), None, "another text");
        assert_eq!(find(&images, "draw", "x", (9, 0)), None);
    }
}
