//! The device that tests run on: the emulation, built on first use, or a real one.
//!
//! `LOCKSTEP_EMULATION` says which: `fast` (also where it is not set), `race`, or `device`. The emulation's
//! libraries are loaded before the backend looks for them, so that it finds them by their names.

use crate::device::Device;
use crate::error::DeviceError;
use crate::memory::Memory;
use crate::program::{FILES, Program};
use crate::queue::Queue;
use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// A device with its kernels and the memory of one test.
pub(crate) struct Bench {
    pub(crate) queue: Queue,
    pub(crate) memory: Memory,
}

impl Bench {
    /// On the device that the environment names.
    pub(crate) fn new() -> Bench {
        static PROGRAM: OnceLock<Arc<Program>> = OnceLock::new();
        let device = open_device();
        let program = PROGRAM.get_or_init(|| {
            let program = Program::load(&device, FILES, None);
            Arc::new(program.expect("the kernels"))
        });
        Bench {
            queue: Queue::new(&device, program, false).expect("a queue"),
            memory: Memory::new(&device, 1 << 32).expect("a stream"),
        }
    }
}

/// The device that the environment names.
pub(crate) fn open_device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let device = DEVICE.get_or_init(|| open().expect("a device, or its emulation"));
    device.clone()
}

/// Whether tests run on emulated threads, whose order can be drawn.
pub(crate) fn is_emulated() -> bool {
    mode() != "device"
}

/// Draws another order of threads for what is launched from now on; nothing on a real device.
pub(crate) fn set_seed(seed: u64) {
    if let Some(address) = symbol(c"emulate_set_seed") {
        // SAFETY: the emulation declares the function so.
        let set: extern "C" fn(u64) = unsafe { std::mem::transmute(address) };
        set(seed);
    }
}

/// Races that were found since the start; none where nothing looks for them.
pub(crate) fn num_races() -> u64 {
    let Some(address) = symbol(c"emulate_report") else {
        return 0;
    };
    // SAFETY: the emulation declares the function so.
    let report: extern "C" fn(*mut c_char, usize) = unsafe { std::mem::transmute(address) };
    let mut text = vec![0u8; 4096];
    report(text.as_mut_ptr().cast(), text.len());
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text
        .split_once("\"races\":")
        .expect("a report that counts races");
    let digits: String = rest
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number of races")
}

fn mode() -> String {
    std::env::var("LOCKSTEP_EMULATION").unwrap_or_else(|_| "fast".to_owned())
}

fn open() -> Result<Device, DeviceError> {
    if is_emulated() {
        load_emulation();
    }
    Device::open(0)
}

/// Where the emulation of this mode lies, built if need be.
fn built() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let planted = std::env::var("LOCKSTEP_PLANTED").ok();
    // A build with a fault is never where others look for one without.
    let folder = match &planted {
        Some(_) => format!("{}-planted", mode()),
        None => mode(),
    };
    let out = here.join("../../target/emulate").join(folder);
    let mut build = Command::new(here.join("emulate/build.sh"));
    build.arg(mode()).arg(&out);
    build.args(planted.map(|name| format!("-D{name}")));
    let done = build.output().expect("bash and g++");
    assert!(
        done.status.success(),
        "building the emulation: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    out
}

fn load_emulation() {
    let folder = built();
    // SAFETY: nothing else runs yet that reads the environment of these names.
    unsafe { std::env::set_var("EMULATE_KERNELS", folder.join("libkernels.so")) };
    for library in ["libcuda.so.1", "libnvrtc.so.13"] {
        let path = CString::new(folder.join(library).to_string_lossy().as_bytes()).expect("a path");
        // SAFETY: the library was just built, and does nothing when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "{path:?} can't be loaded");
    }
}

fn symbol(name: &std::ffi::CStr) -> Option<*mut c_void> {
    // SAFETY: it only looks a name up among what is loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
