//! Which instruction set a kernel uses. Every choice gives the same bits, so the choice is only speed.

use lockstep_numerics::lanes::Level;
use std::fmt;
use std::str::FromStr;

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: the portable path.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Isa {
    /// Every instruction set that this machine has, slowest first.
    pub fn available() -> Vec<Isa> {
        let mut found = vec![Isa::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            let level = Level::detect();
            if level >= Level::Avx2 {
                found.push(Isa::Avx2);
            }
            if level >= Level::Avx512 && is_x86_feature_detected!("avx512vnni") {
                found.push(Isa::Avx512);
            }
        }
        found
    }

    /// The fastest instruction set that this machine has.
    pub fn detect() -> Isa {
        Isa::available().into_iter().max().unwrap_or(Isa::Scalar)
    }

    /// The register width of the float kernels that go with it.
    pub fn level(self) -> Level {
        match self {
            Isa::Scalar => Level::Scalar,
            Isa::Avx2 => Level::Avx2,
            Isa::Avx512 => Level::Avx512,
        }
    }

    /// Its name, as flags and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(text: &str) -> Result<Isa, String> {
        let isa = match text {
            "scalar" => Isa::Scalar,
            "avx2" => Isa::Avx2,
            "avx512" => Isa::Avx512,
            other => {
                return Err(format!(
                    "unknown instruction set {other:?}: scalar, avx2, avx512"
                ));
            }
        };
        if Isa::available().contains(&isa) {
            Ok(isa)
        } else {
            Err(format!(
                "this machine has no {isa}; it has up to {}",
                Isa::detect()
            ))
        }
    }
}
