//! What a benchmark runs on a device: copies and products that show what it can do at most, and the products of a model
//! with the order of sums that the law asks for and with a free one. It reads no clock, and no backend uses it: kernels
//! with a free order are in a program of their own, which is loaded here and nowhere else.

use crate::device::Device;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::{Memory, Ptr, Region};
use crate::ops::linear::{ProductQ8, TILE_OUTPUTS, WGMMA_CAPABILITY};
use crate::ops::quantize::quantized_len;
use crate::program::{FILES, MEASURING, Program};
use crate::queue::{Queue, Shape};
use lockstep_numerics::groups::{groups, shards};
use lockstep_package::blueprint::{Blueprint, MatrixPart, MixerParts};
use lockstep_package::{ModelConfig, required_tensors};
use std::path::Path;
use std::sync::Arc;

kernel! {
    /// Products of `mma.sync`, as many as there can be.
    pub(crate) Int8Peak = "int8_peak" in "bench_peak" {
        out: Ptr<i32>, rounds: i32,
    }
}

kernel! {
    /// Products of `wgmma`, as many as there can be.
    pub(crate) Int8PeakWgmma = "int8_peak_wgmma" in "bench_peak_wgmma" {
        out: Ptr<i32>, rounds: i32,
    }
}

/// Threads of a block of either, and operations of a block in a round: two per product of two numbers.
const PEAK_THREADS: u32 = 256;
const PEAK_OPS: u64 = 8 * 8 * (16 * 8 * 32) * 2;
const PEAK_OPS_WGMMA: u64 = 2 * 4 * (64 * 64 * 32) * 2;

/// In which order sums are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumOrder {
    /// The one that the law asks for.
    Exact,
    /// Whichever is quickest. No model is computed so.
    Free,
}

/// One matrix of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    /// Outputs.
    pub n: usize,
    /// Inputs.
    pub k: usize,
    /// Whether its sums are cut into shards.
    pub row_parallel: bool,
}

/// The matrices of a model's first layer of attention and its head: those that a token goes through.
pub fn matrices(config: &ModelConfig) -> Vec<MatrixShape> {
    let parts = Blueprint::of(config);
    let tensors = required_tensors(config);
    let shape = |part: &MatrixPart| {
        let of = |name: &String| tensors.iter().find(|tensor| tensor.name == *name);
        let shapes = part.names.iter().filter_map(of).map(|tensor| &tensor.shape);
        let k = shapes.clone().next().map_or(0, |shape| shape[1]);
        MatrixShape {
            n: shapes.map(|shape| shape[0]).sum(),
            k,
            row_parallel: part.row_parallel,
        }
    };
    let mut all = Vec::new();
    for layer in &parts.layers {
        if let MixerParts::Attention(attention) = &layer.mixer {
            all.extend([&attention.qkv, &attention.out, &layer.gate_up, &layer.down].map(shape));
            break;
        }
    }
    all.push(shape(&parts.head));
    all
}

/// A device that is measured.
pub struct DeviceBench {
    device: Device,
    serving: Queue,
    measuring: Queue,
}

/// A product that is measured, with operands of small whole numbers.
pub struct MeasuredProduct {
    product: ProductQ8,
    _memory: Memory,
}

/// A copy that is measured.
pub struct MeasuredCopy {
    from: Ptr<u8>,
    to: Ptr<u8>,
    num_bytes: usize,
    _memory: Memory,
}

impl DeviceBench {
    /// Compiles what is measured, or takes it from the folder where compiled kernels are kept.
    ///
    /// # Errors
    /// As [`crate::CudaBackend::load`].
    pub fn new(device: &Device, kernel_cache: Option<&Path>) -> Result<DeviceBench, DeviceError> {
        let queue = |files| {
            let program = Program::load(device, files, kernel_cache)?;
            Queue::new(device, &Arc::new(program), false)
        };
        Ok(DeviceBench {
            device: device.clone(),
            serving: queue(FILES)?,
            measuring: queue(MEASURING)?,
        })
    }

    /// Two buffers of this size.
    ///
    /// # Errors
    /// If there is no room for them.
    pub fn copy(&self, num_bytes: usize) -> Result<MeasuredCopy, DeviceError> {
        let mut memory = Memory::new(&self.device, usize::MAX)?;
        Ok(MeasuredCopy {
            from: memory.claim_repeated(Region::Buffers, "a copy's source", num_bytes, &[1u8])?,
            to: memory.claim_zeroed(Region::Buffers, "a copy's target", num_bytes)?,
            num_bytes,
            _memory: memory,
        })
    }

    /// Copies so many times and waits.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run_copy(&self, copy: &MeasuredCopy, times: u32) -> Result<(), DeviceError> {
        for _ in 0..times {
            self.measuring
                .copy("a measured copy", copy.from, copy.to, copy.num_bytes)?;
        }
        self.measuring.wait("measured copies")
    }

    /// The instruction that int8 products are measured with.
    pub fn int8_instruction(&self) -> &'static str {
        match self.device.capability() == WGMMA_CAPABILITY {
            true => "wgmma m64n64k32",
            false => "mma.sync m16n8k32",
        }
    }

    /// Multiplies int8 on all of the device, in two blocks per multiprocessor, and waits; how many operations that was.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run_int8(&self, rounds: u32) -> Result<u64, DeviceError> {
        let blocks = 2 * self.device.num_multiprocessors();
        let mut memory = Memory::new(&self.device, usize::MAX)?;
        let len = (blocks * PEAK_THREADS) as usize;
        let out = memory.claim(Region::Buffers, "sums", len)?;
        let shape = Shape {
            grid: [blocks, 1, 1],
            block: [PEAK_THREADS, 1, 1],
            shared: 0,
        };
        let queue = &self.measuring;
        let rounds_arg = rounds as i32;
        let per_block = if self.device.capability() == WGMMA_CAPABILITY {
            let kernel = Int8PeakWgmma {
                out,
                rounds: rounds_arg,
            };
            queue.launch(&kernel, shape)?;
            PEAK_OPS_WGMMA
        } else {
            let kernel = Int8Peak {
                out,
                rounds: rounds_arg,
            };
            queue.launch(&kernel, shape)?;
            PEAK_OPS
        };
        queue.wait("measured products")?;
        Ok(u64::from(blocks) * u64::from(rounds) * per_block)
    }

    /// The operands of a product for `m` tokens.
    ///
    /// # Errors
    /// If there is no room for them.
    pub fn product(&self, m: usize, shape: MatrixShape) -> Result<MeasuredProduct, DeviceError> {
        let MatrixShape { n, k, row_parallel } = shape;
        let mut memory = Memory::new(&self.device, usize::MAX)?;
        let region = Region::Buffers;
        let padded = n.next_multiple_of(TILE_OUTPUTS);
        let num_weights = padded * k.next_multiple_of(16);
        let product = ProductQ8 {
            y: memory.claim(region, "outputs", m * n)?,
            w: memory.claim_repeated(region, "weights", num_weights, &[1i8, -1, 1, 0, 0])?,
            w_scales: memory.claim_repeated(region, "scales", groups(k) * padded, &[1.0f32])?,
            x: memory.claim_repeated(region, "inputs", quantized_len(m, k), &[1i8, 0])?,
            x_scales: memory.claim_repeated(region, "scales", m * groups(k), &[1.0f32])?,
            m,
            n,
            k,
            num_shards: if row_parallel { shards(k) } else { 1 },
        };
        Ok(MeasuredProduct {
            product,
            _memory: memory,
        })
    }

    /// Multiplies so many times and waits.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run_product(
        &self,
        measured: &MeasuredProduct,
        order: SumOrder,
        times: u32,
    ) -> Result<(), DeviceError> {
        let queue = match order {
            SumOrder::Exact => &self.serving,
            SumOrder::Free => &self.measuring,
        };
        for _ in 0..times {
            measured.product.launch(queue)?;
        }
        queue.wait("measured products")
    }

    /// What a product came to, for whoever doubts what is measured: (tokens, outputs).
    #[cfg(test)]
    fn outputs(
        &self,
        measured: &MeasuredProduct,
        order: SumOrder,
    ) -> Result<Vec<f32>, DeviceError> {
        self.run_product(measured, order, 1)?;
        let len = measured.product.m * measured.product.n;
        let mut to = crate::memory::Pinned::zeroed(&self.device, len)?;
        let queue = &self.serving;
        queue.download("outputs", measured.product.y, &mut to, len)?;
        queue.wait("outputs")?;
        Ok(to.values().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{only_for, program_text, symbols};
    use crate::testing::open_device;

    #[test]
    fn a_free_order_multiplies_the_same_matrices() {
        let device = open_device();
        let bench = DeviceBench::new(&device, None).expect("kernels");
        // Any order of threads will do.
        crate::testing::set_seed(3);
        // Whole numbers, of which every order makes the same sum.
        for m in [1, 3, 8, 20, 70] {
            let shape = MatrixShape {
                n: 70,
                k: 1100,
                row_parallel: true,
            };
            let product = bench.product(m, shape).expect("memory");
            let [exact, free] = [SumOrder::Exact, SumOrder::Free]
                .map(|order| bench.outputs(&product, order).expect("a product"));
            assert!(exact.iter().any(|&sum| sum != 0.0), "{m} tokens");
            assert_eq!(exact, free, "{m} tokens");
        }
    }

    #[test]
    fn limits_are_measured_by_work_that_is_done() {
        let device = open_device();
        let bench = DeviceBench::new(&device, None).expect("kernels");
        let copy = bench.copy(1 << 16).expect("memory");
        bench.run_copy(&copy, 2).expect("copies");
        let (one, two) = (bench.run_int8(1), bench.run_int8(2));
        let (one, two) = (one.expect("products"), two.expect("products"));
        assert_eq!(two, 2 * one);
        assert_eq!(one % (1 << 20), 0);
    }

    #[test]
    fn what_serves_never_has_a_free_order() {
        let free = |files: &[(&str, &str)]| {
            let texts = files.iter().map(|(file, _)| program_text(file));
            let defines = |text: &String| text.lines().any(|line| line == "#define FREE_ORDER");
            texts.filter(defines).count()
        };
        assert_eq!((free(FILES), free(MEASURING)), (0, 2));
        // Neither program has a kernel twice.
        for files in [FILES, MEASURING] {
            let texts: Vec<String> = files.iter().map(|(file, _)| program_text(file)).collect();
            let mut all: Vec<&str> = texts.iter().flat_map(|text| symbols(text)).collect();
            let num = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), num);
        }
        let only = |file| only_for(&program_text(file)).map(str::to_owned);
        assert_eq!(only("bench_linear_q8_wgmma").as_deref(), Some("sm_90a"));
    }
}
