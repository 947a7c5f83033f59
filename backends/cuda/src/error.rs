//! What can go wrong with a device, each with what was being done and what to do next.

use cudarc::driver::{DriverError, sys::CUresult};
use lockstep_package::LoadError;
use lockstep_step::BackendError;
use std::fmt;

/// Why the device can't do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// There is no CUDA driver library on this machine.
    NoDriver,
    /// There is no compiler library, and the kernels for this device are not in the cache.
    NoCompiler,
    /// The driver knows fewer devices.
    NoDevice {
        /// Which one was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The device is older than what the kernels need.
    TooOld {
        /// Its name.
        name: String,
        /// Its compute capability.
        capability: (i32, i32),
    },
    /// A kernel does not compile.
    Compile {
        /// The file.
        file: &'static str,
        /// What the compiler said.
        log: String,
    },
    /// What is to be held is more than the budget, or than the device has free.
    Memory {
        /// What did not fit.
        what: String,
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// The driver refused an operation.
    Failed {
        /// The operation or the kernel.
        op: String,
        /// The driver's name for the error.
        name: String,
        /// The driver's words.
        message: String,
        /// Whether everything on the device is lost with it.
        lost: bool,
    },
}

/// The oldest compute capability that the kernels are compiled for.
pub(crate) const CAPABILITY_MIN: (i32, i32) = (8, 0);

impl DeviceError {
    /// What the driver said to an operation.
    pub(crate) fn driver(op: &str, error: DriverError) -> DeviceError {
        let text = |found: Result<&std::ffi::CStr, DriverError>| {
            found.map_or("?".to_owned(), |text| text.to_string_lossy().into_owned())
        };
        DeviceError::Failed {
            op: op.to_owned(),
            name: text(error.error_name()),
            message: text(error.error_string()),
            lost: is_lost(error.0),
        }
    }
}

/// After these nothing on the device can be trusted or used any more.
fn is_lost(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::NoDriver => f.write_str("no CUDA driver (libcuda.so.1) on this machine"),
            DeviceError::NoCompiler => f.write_str(
                "no CUDA compiler library (libnvrtc.so), and no compiled kernels in the cache or \
                 in this program",
            ),
            DeviceError::NoDevice { ordinal, count } => {
                write!(
                    f,
                    "CUDA device {ordinal} of {count}: there is no such device"
                )
            }
            DeviceError::TooOld {
                name,
                capability: (major, minor),
            } => write!(
                f,
                "{name} has compute capability {major}.{minor}, expected {}.{} or later",
                CAPABILITY_MIN.0, CAPABILITY_MIN.1
            ),
            DeviceError::Compile { file, log } => write!(f, "{file}.cu does not compile:\n{log}"),
            DeviceError::Memory {
                what,
                needed,
                available,
            } => write!(
                f,
                "{what} needs {needed} bytes of device memory, {available} are available"
            ),
            DeviceError::Failed {
                op, name, message, ..
            } => write!(f, "{op}: {name}: {message}"),
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<DeviceError> for BackendError {
    fn from(error: DeviceError) -> BackendError {
        match &error {
            DeviceError::Failed { lost: true, .. } => BackendError::Lost(error.to_string()),
            _ => BackendError::Device(error.to_string()),
        }
    }
}

/// Why a model can't be put on a device.
#[derive(Clone, Debug, PartialEq)]
pub enum CudaError {
    /// The package or an option is wrong.
    Load(LoadError),
    /// The device can't.
    Device(DeviceError),
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::Load(error) => write!(f, "{error}"),
            CudaError::Device(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<LoadError> for CudaError {
    fn from(error: LoadError) -> CudaError {
        CudaError::Load(error)
    }
}

impl From<DeviceError> for CudaError {
    fn from(error: DeviceError) -> CudaError {
        CudaError::Device(error)
    }
}

impl From<CudaError> for BackendError {
    fn from(error: CudaError) -> BackendError {
        match error {
            CudaError::Load(error) => BackendError::Device(error.to_string()),
            CudaError::Device(error) => error.into(),
        }
    }
}
