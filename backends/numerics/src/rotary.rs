//! Rotary tables: cosines and sines per position, made on the host in float64.
//!
//! Must never differ between machines: powers, sines and cosines come from [`crate::double`], and
//! only the final values are rounded to float32, once.

use crate::double;

/// How the frequencies of a model are stretched for long contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// Not at all.
    Default,
    /// Every frequency divided by `factor`.
    Linear {
        /// Positive.
        factor: f64,
    },
    /// The Llama 3.1 rule: low frequencies are divided, high ones kept, those between blended.
    Llama3 {
        /// What low frequencies are divided by.
        factor: f64,
        /// Wavelengths longer than `original / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths shorter than `original / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length of the original training, in positions.
        original_max_position_embeddings: f64,
    },
}

/// The frequencies of one kind of attention layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Radians per position, one per rotated pair, `dim / 2` of them.
    inv_freq: Vec<f64>,
}

impl Rotary {
    /// Frequencies `theta^(-2i / dim)`, scaled. `dim` is the number of rotated dimensions of a head
    /// (`head_dim * partial_rotary_factor`), even; the others pass unrotated.
    pub fn new(theta: f64, dim: usize, scaling: RotaryScaling) -> Rotary {
        assert!(
            dim.is_multiple_of(2),
            "rotary over {dim} dimensions, expected an even number"
        );
        let frequency = |i: usize| double::pow(theta, -((2 * i) as f64 / dim as f64));
        let inv_freq = (0..dim / 2).map(|i| scaling.apply(frequency(i))).collect();
        Rotary { inv_freq }
    }

    /// Number of rotated pairs: element `i` is paired with element `i + pairs`.
    pub fn pairs(&self) -> usize {
        self.inv_freq.len()
    }

    /// Radians per position of each pair.
    pub fn inv_freq(&self) -> &[f64] {
        &self.inv_freq
    }

    /// Writes the cosines and sines of one position, `pairs` of each.
    ///
    /// `position * inv_freq` must stay below 2^30 radians.
    pub fn fill(&self, position: u64, cos: &mut [f32], sin: &mut [f32]) {
        assert_eq!(
            (cos.len(), sin.len()),
            (self.pairs(), self.pairs()),
            "rotary row"
        );
        for ((&f, cos), sin) in self.inv_freq.iter().zip(cos).zip(sin) {
            let (s, c) = double::sin_cos(position as f64 * f);
            (*cos, *sin) = (c as f32, s as f32);
        }
    }

    /// The rows of positions `0..positions`.
    pub fn table(&self, positions: usize) -> RotaryTable {
        let n = self.pairs();
        let mut table = RotaryTable {
            pairs: n,
            cos: vec![0.0; positions * n],
            sin: vec![0.0; positions * n],
        };
        for p in 0..positions {
            let range = p * n..(p + 1) * n;
            self.fill(
                p as u64,
                &mut table.cos[range.clone()],
                &mut table.sin[range],
            );
        }
        table
    }
}

impl RotaryScaling {
    /// The scaled frequency, in radians per position.
    fn apply(self, f: f64) -> f64 {
        match self {
            RotaryScaling::Default => f,
            RotaryScaling::Linear { factor } => f / factor,
            RotaryScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                let wavelength = 2.0 * core::f64::consts::PI / f;
                if wavelength > original / low {
                    f / factor
                } else if wavelength < original / high {
                    f
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    (1.0 - smooth) * f / factor + smooth * f
                }
            }
        }
    }
}

/// Cosines and sines of the first positions.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryTable {
    /// Pairs per position.
    pub pairs: usize,
    /// `(positions, pairs)`.
    pub cos: Vec<f32>,
    /// `(positions, pairs)`.
    pub sin: Vec<f32>,
}

impl RotaryTable {
    /// The cosines and sines of a position. Panics beyond the table.
    pub fn row(&self, position: usize) -> (&[f32], &[f32]) {
        let range = position * self.pairs..(position + 1) * self.pairs;
        (&self.cos[range.clone()], &self.sin[range])
    }
}
