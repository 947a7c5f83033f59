//! A GPU from the command line: found or not, in words that say what to do next, and where its memory went.

use crate::{backend::load_advice, exit::Failure, flags::CudaArgs};
use lockstep_cuda::{CudaBackend, CudaError, CudaOptions, Device, DeviceError, Region};
use lockstep_package::{Package, Progress};
use lockstep_step::{BLOCK_LEN, Backend};
use std::path::PathBuf;

/// Opens the device that the flags name.
///
/// # Errors
/// If there is none.
pub fn open(args: &CudaArgs) -> Result<Device, Failure> {
    Device::open(args.device).map_err(|error| failure(&error))
}

/// The device that the flags name, or none. A driver without a usable device is told about.
pub fn open_if_any(args: &CudaArgs) -> Option<Device> {
    match Device::open(args.device) {
        Ok(device) => Some(device),
        Err(DeviceError::NoDriver) => None,
        Err(error) => {
            eprintln!("the CPU computes, since no GPU can: {error}");
            None
        }
    }
}

/// What the flags say, but for what they say of models.
pub fn options(args: &CudaArgs) -> CudaOptions {
    let gib = f64::from(1u32 << 30);
    CudaOptions {
        memory_bytes: args.device_memory_gib.map(|size| (size * gib) as usize),
        graph_rows: args.graph_rows,
        blocking: args.blocking_launches,
        kernel_cache: cache_folder(),
        ..CudaOptions::default()
    }
}

/// Where compiled kernels are kept: beside what other programs cache.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = folder("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")));
    Some(cache?.join("lockstep").join("kernels"))
}

/// Puts models on a device.
///
/// # Errors
/// Why they can't be.
pub fn load(
    device: &Device,
    models: (&Package, Option<&Package>),
    options: &CudaOptions,
    progress: &dyn Progress,
) -> Result<CudaBackend, Failure> {
    let loaded = CudaBackend::load(device, models, options, progress);
    loaded.map_err(|error| load_failure(&error))
}

/// Why a model can't be put on a device, and what to try.
pub fn load_failure(error: &CudaError) -> Failure {
    match error {
        CudaError::Load(error) => Failure::input(error, load_advice(error)),
        CudaError::Device(error) => failure(error),
    }
}

/// Says on standard error what is held on the device, and for what.
pub fn print_memory(backend: &CudaBackend, options: &CudaOptions) {
    let gib = |bytes: usize| bytes as f64 / f64::from(1u32 << 30);
    let table = backend.memory_table();
    for (region, bytes) in &table {
        let remark = match region {
            Region::Blocks => cache_remark(backend.limits().num_blocks, options),
            _ => String::new(),
        };
        eprintln!("{:<14}{:>9.3} GiB{remark}", region.name(), gib(*bytes));
    }
    let sum = table.iter().map(|(_, bytes)| bytes).sum();
    let (name, architecture) = (backend.device().name(), backend.device().architecture());
    eprintln!(
        "{:<14}{:>9.3} GiB on {name} ({architecture})",
        "device",
        gib(sum)
    );
}

/// How many blocks there are, and why as many.
fn cache_remark(num_blocks: u32, options: &CudaOptions) -> String {
    let why = match (options.fit_blocks, num_blocks < options.num_blocks) {
        (false, _) => "as the flags say",
        (true, true) => "what the memory budget leaves; --kv-cache-gib holds less",
        (true, false) => "enough for --max-num-seqs of the longest sequences",
    };
    format!("  {num_blocks} blocks of {BLOCK_LEN} tokens: {why}")
}

/// What went wrong with a device, and what to do next.
pub fn failure(error: &DeviceError) -> Failure {
    let next = match error {
        DeviceError::NoDriver => "install the NVIDIA driver, or say --backend cpu",
        DeviceError::NoCompiler => {
            "install NVRTC (libnvrtc, of the CUDA toolkit or its own package) where the loader \
             finds it, or say --backend cpu"
        }
        DeviceError::NoDevice { .. } | DeviceError::TooOld { .. } => {
            "say another --device, or --backend cpu"
        }
        DeviceError::Memory { .. } => {
            "give it more with --device-memory-gib, or hold less: --kv-cache-gib, \
             --max-model-len, --max-num-batched-tokens, --max-num-seqs"
        }
        DeviceError::Compile { .. } | DeviceError::Failed { .. } => {
            "`lockstep selftest --backend cuda` tries the device; --blocking-launches names the \
             kernel"
        }
    };
    match error {
        DeviceError::Compile { .. } | DeviceError::Failed { .. } => Failure {
            next: next.to_owned(),
            ..Failure::failed(error)
        },
        _ => Failure::input(error, next),
    }
}
