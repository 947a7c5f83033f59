//! The kernels of all files, compiled for the device that was found and cached by content. Nothing is compiled
//! twice on one machine, and a kernel whose source changed is never taken from the cache.

use crate::device::Device;
use crate::error::DeviceError;
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

mod images;
mod sources;
pub(crate) use sources::{FILES, MEASURING, only_for, program_text, symbols};

/// Everything that kernels can be launched from.
pub struct Program {
    device: Device,
    modules: Vec<sys::CUmodule>,
    functions: BTreeMap<String, sys::CUfunction>,
}

// SAFETY: handles of a context can be used from any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    /// Loads every kernel of these files that there is for the device, compiling what the cache folder does not have.
    /// Without a folder nothing is kept.
    ///
    /// # Errors
    /// If there is no compiler where one is needed, a file does not compile, or the driver refuses it.
    pub(crate) fn load(
        device: &Device,
        files: &[(&'static str, &str)],
        cache: Option<&Path>,
    ) -> Result<Program, DeviceError> {
        device.bind()?;
        let mut program = Program {
            device: device.clone(),
            modules: Vec::new(),
            functions: BTreeMap::new(),
        };
        for &(file, _) in files {
            program.add(file, cache)?;
        }
        Ok(program)
    }

    fn add(&mut self, file: &'static str, cache: Option<&Path>) -> Result<(), DeviceError> {
        let text = program_text(file);
        if only_for(&text).is_some_and(|only| only != self.device.architecture()) {
            return Ok(());
        }
        let cubin = compiled(&self.device, file, &text, cache)?;
        let failed = |error| DeviceError::driver(file, error);
        // SAFETY: the image is a whole module that the compiler made, or was checked to be what it once made.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) };
        let module = module.map_err(failed)?;
        self.modules.push(module);
        for symbol in symbols(&text) {
            let name = CString::new(symbol).map_err(|_| DeviceError::Compile {
                file,
                log: format!("a kernel is called {symbol:?}"),
            })?;
            // SAFETY: the module was just loaded.
            let function = unsafe { result::module::get_function(module, name) };
            let function = function.map_err(|error| DeviceError::driver(symbol, error))?;
            self.allow_shared(symbol, function)?;
            self.functions.insert(symbol.to_owned(), function);
        }
        Ok(())
    }

    /// Lets a kernel have all of the shared memory that it does not have already.
    fn allow_shared(&self, symbol: &str, function: sys::CUfunction) -> Result<(), DeviceError> {
        let failed = |error| DeviceError::driver(symbol, error);
        let fixed = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let dynamic = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function exists.
        let used = unsafe { result::function::get_function_attribute(function, fixed) };
        let left = self.device.shared_bytes_max() as i32 - used.map_err(failed)?;
        // SAFETY: as above.
        unsafe { result::function::set_function_attribute(function, dynamic, left) }.map_err(failed)
    }

    /// A kernel by its name.
    ///
    /// # Panics
    /// If no file has it: every wrapper names one that a file has, which a test holds, and whoever launches one that
    /// only some devices have asks for the device first.
    pub(crate) fn function(&self, symbol: &str) -> sys::CUfunction {
        let found = self.functions.get(symbol);
        *found.unwrap_or_else(|| panic!("no kernel is called {symbol}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.device.bind().is_err() {
            return;
        }
        for &module in &self.modules {
            // SAFETY: it was loaded and is unloaded once.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}

/// What the compiler is told, besides the architecture: nothing is contracted or approximated.
const OPTIONS: [&str; 3] = ["--fmad=false", "--std=c++17", "-lineinfo"];

/// What a kept file begins with; then comes the digest of what follows.
const MAGIC: &[u8; 8] = b"lockcu01";

/// A file's binary for this device, from the cache or the compiler.
fn compiled(
    device: &Device,
    file: &'static str,
    text: &str,
    cache: Option<&Path>,
) -> Result<Vec<u8>, DeviceError> {
    let architecture = device.architecture();
    let kept = cache.map(|folder| folder.join(cache_name(device, file, text)));
    if let Some(cubin) = kept.as_deref().and_then(read_kept) {
        return Ok(cubin);
    }
    // SAFETY: it only looks for the library.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        let brought = images::find(images::IMAGES, file, text, device.capability());
        return brought.map(<[u8]>::to_vec).ok_or(DeviceError::NoCompiler);
    }
    let cubin = compile(file, text, &architecture)?;
    if let Some(path) = kept {
        // A cache that can't be written costs time at the next start, and nothing else.
        let _ = keep(&path, &cubin);
    }
    Ok(cubin)
}

/// By content, and by the device: what stands in for one has images of its own.
fn cache_name(device: &Device, file: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    let architecture = device.architecture();
    let parts = [text, &architecture, device.name()];
    for part in parts.into_iter().chain(OPTIONS) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest: String = hash.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{file}-{architecture}-{digest}.cubin")
}

/// A file of the cache; none where it is not there or not whole.
fn read_kept(path: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (digest, cubin) = rest.split_at_checked(32)?;
    (Sha256::digest(cubin)[..] == *digest).then(|| cubin.to_vec())
}

/// Writes a file of the cache so that nobody ever sees half of it.
fn keep(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&Sha256::digest(cubin));
    bytes.extend_from_slice(cubin);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let partial = PathBuf::from(name);
    std::fs::write(&partial, bytes)?;
    std::fs::rename(&partial, path)
}

/// Compiles a file to a binary for one architecture.
fn compile(file: &'static str, text: &str, architecture: &str) -> Result<Vec<u8>, DeviceError> {
    let refused = |log: String| DeviceError::Compile { file, log };
    let source = CString::new(text).map_err(|error| refused(error.to_string()))?;
    let name = CString::new(format!("{file}.cu")).map_err(|error| refused(error.to_string()))?;
    let program = nvrtc::result::create_program(&source, Some(&name));
    let program = program.map_err(|error| refused(error.to_string()))?;
    let mut options = vec![format!("--gpu-architecture={architecture}")];
    options.extend(OPTIONS.map(str::to_owned));
    // SAFETY: the program was just made, and is destroyed once, below.
    let done = unsafe { nvrtc::result::compile_program(program, &options) };
    let cubin = match done {
        Ok(()) => cubin(program).map_err(|error| refused(error.to_string())),
        Err(error) => Err(refused(format!("{error}\n{}", log(program)))),
    };
    // SAFETY: nothing uses the program any more.
    let _ = unsafe { nvrtc::result::destroy_program(program) };
    cubin
}

fn cubin(program: nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>, nvrtc::result::NvrtcError> {
    let mut len = 0;
    // SAFETY: the program was compiled; the compiler writes the size.
    unsafe { nvrtc::sys::nvrtcGetCUBINSize(program, &mut len) }.result()?;
    let mut bytes = vec![0u8; len];
    // SAFETY: the buffer has that size.
    unsafe { nvrtc::sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()) }.result()?;
    Ok(bytes)
}

fn log(program: nvrtc::sys::nvrtcProgram) -> String {
    // SAFETY: the program lives.
    let log = unsafe { nvrtc::result::get_program_log(program) };
    let log = log.unwrap_or_default();
    let bytes: Vec<u8> = log.iter().map(|&c| c as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().into_owned(),
    )
}
