//! A device: found without a panic where there is none, and described in the words that kernels need.

use crate::error::{CAPABILITY_MIN, DeviceError};
use crate::ops::linear::WGMMA_CAPABILITY;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::{CudaContext, result, sys};
use std::sync::Arc;

/// A CUDA device that is open.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    name: String,
    capability: (i32, i32),
    shared_bytes_max: usize,
    num_multiprocessors: u32,
}

impl Device {
    /// Opens a device by its number.
    ///
    /// # Errors
    /// If there is no driver, no such device, or it is too old.
    pub fn open(ordinal: usize) -> Result<Device, DeviceError> {
        // SAFETY: it only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        let failed = |error| DeviceError::driver("opening the device", error);
        result::init().map_err(failed)?;
        let count = result::device::get_count().map_err(failed)?.max(0) as usize;
        if ordinal >= count {
            return Err(DeviceError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(failed)?;
        let attribute = |which| context.attribute(which).map_err(failed);
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let shared_bytes_max =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.max(0);
        let num_multiprocessors =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
        let name = context.name().map_err(failed)?;
        if capability < CAPABILITY_MIN {
            return Err(DeviceError::TooOld { name, capability });
        }
        Ok(Device {
            context,
            name,
            capability,
            shared_bytes_max: shared_bytes_max as usize,
            num_multiprocessors: num_multiprocessors as u32,
        })
    }

    /// The driver's name for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernels are compiled for, such as `sm_80`. For compute capability 9.0 it is `sm_90a`, which has
    /// instructions that no other has, not even later ones.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.capability;
        let own = if self.capability == WGMMA_CAPABILITY {
            "a"
        } else {
            ""
        };
        format!("sm_{major}{minor}{own}")
    }

    /// Its compute capability: major and minor version.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Bytes of shared memory that one block can have.
    pub fn shared_bytes_max(&self) -> usize {
        self.shared_bytes_max
    }

    /// Multiprocessors.
    pub fn num_multiprocessors(&self) -> u32 {
        self.num_multiprocessors
    }

    /// Whether the host stands in for it: what is measured then is no speed of a device.
    pub fn is_emulated(&self) -> bool {
        self.name.contains("host emulation")
    }

    /// Free and total bytes of its memory.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn memory_info(&self) -> Result<(usize, usize), DeviceError> {
        let info = self.context.mem_get_info();
        info.map_err(|error| DeviceError::driver("asking for free memory", error))
    }

    /// Makes the device the one that this thread's calls go to.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn bind(&self) -> Result<(), DeviceError> {
        let bound = self.context.bind_to_thread();
        bound.map_err(|error| DeviceError::driver("binding the device to a thread", error))
    }
}
