//! Memory of the device and pinned memory of the host. All of it is claimed at the start, each buffer by its own
//! name and in one of a few regions, within a budget; nothing is claimed or given up while steps run.

use crate::device::Device;
use crate::error::DeviceError;
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::fmt;
use std::marker::PhantomData;

/// A typed address on the device. It does not own what it points to: [`Memory`] does.
pub struct Ptr<T> {
    address: sys::CUdeviceptr,
    of: PhantomData<*const T>,
}

impl<T> Ptr<T> {
    /// Stands for no buffer.
    pub fn null() -> Ptr<T> {
        Ptr::new(0)
    }

    pub(crate) fn new(address: sys::CUdeviceptr) -> Ptr<T> {
        Ptr {
            address,
            of: PhantomData,
        }
    }

    /// The address of the element `n` elements on.
    pub fn at(self, n: usize) -> Ptr<T> {
        Ptr::new(self.address + (n * size_of::<T>()) as u64)
    }

    /// The same address, to be read as elements of another type.
    pub fn cast<U>(self) -> Ptr<U> {
        Ptr::new(self.address)
    }

    /// The bare address.
    pub fn address(self) -> u64 {
        self.address
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Ptr<T> {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

// SAFETY: an address is a number; what it points to is only reached through a queue.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

/// What a buffer is for: the lines of the table that is printed at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// Weights of the model.
    Weights,
    /// Weights and memory of models that draft.
    Drafters,
    /// Blocks of the KV cache.
    Blocks,
    /// Rows of recurrent state.
    Rows,
    /// Buffers of a step, of fixed sizes.
    Buffers,
}

impl Region {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Region::Weights => "weights",
            Region::Drafters => "drafters",
            Region::Blocks => "blocks",
            Region::Rows => "rows",
            Region::Buffers => "step buffers",
        }
    }
}

/// The memory of one device that this process holds. It is given up as a whole.
pub struct Memory {
    device: Device,
    budget: usize,
    held: Vec<Held>,
    // Its own, so that nobody who records a graph at the time is disturbed, as the stream of all would disturb.
    stream: sys::CUstream,
}

// SAFETY: a stream can be used from any thread, by one at a time.
unsafe impl Send for Memory {}

struct Held {
    region: Region,
    address: sys::CUdeviceptr,
    num_bytes: usize,
}

impl Memory {
    /// Nothing yet, of at most `budget` bytes.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn new(device: &Device, budget: usize) -> Result<Memory, DeviceError> {
        device.bind()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(Memory {
            device: device.clone(),
            budget,
            held: Vec::new(),
            stream: stream.map_err(|error| DeviceError::driver("creating a stream", error))?,
        })
    }

    /// Claims a buffer of `len` elements. What it holds means nothing.
    ///
    /// # Errors
    /// If the budget does not allow it, or the device has not enough.
    pub fn claim<T>(
        &mut self,
        region: Region,
        what: &str,
        len: usize,
    ) -> Result<Ptr<T>, DeviceError> {
        // A buffer of no elements still needs an address.
        let num_bytes = (len * size_of::<T>()).max(1);
        let short = |available| DeviceError::Memory {
            what: what.to_owned(),
            needed: num_bytes,
            available,
        };
        let left = self.budget.saturating_sub(self.num_bytes());
        if num_bytes > left {
            return Err(short(left));
        }
        self.device.bind()?;
        // SAFETY: the size is not 0, and the address is kept until `drop`.
        let claimed = unsafe { result::malloc_sync(num_bytes) };
        let address = match claimed {
            Ok(address) => address,
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                return Err(short(self.device.memory_info()?.0));
            }
            Err(error) => return Err(DeviceError::driver(what, error)),
        };
        self.held.push(Held {
            region,
            address,
            num_bytes,
        });
        Ok(Ptr::new(address))
    }

    /// Claims a buffer and fills it, before any step runs.
    ///
    /// # Errors
    /// As [`Memory::claim`], or if the copy fails.
    pub fn claim_filled<T: Pod>(
        &mut self,
        region: Region,
        what: &str,
        values: &[T],
    ) -> Result<Ptr<T>, DeviceError> {
        let to = self.claim::<T>(region, what, values.len())?;
        if !values.is_empty() {
            // SAFETY: the buffer was just claimed with room for all values, which outlive the wait.
            let copied = unsafe { result::memcpy_htod_async(to.address, values, self.stream) };
            copied.map_err(|error| DeviceError::driver(what, error))?;
            self.settle(what)?;
        }
        Ok(to)
    }

    /// Claims a buffer of zeros.
    ///
    /// # Errors
    /// As [`Memory::claim`].
    pub fn claim_zeroed<T: Pod>(
        &mut self,
        region: Region,
        what: &str,
        len: usize,
    ) -> Result<Ptr<T>, DeviceError> {
        let to = self.claim::<T>(region, what, len)?;
        let num_bytes = len * size_of::<T>();
        if num_bytes > 0 {
            // SAFETY: the buffer was just claimed with this size.
            let set = unsafe { result::memset_d8_async(to.address, 0, num_bytes, self.stream) };
            set.map_err(|error| DeviceError::driver(what, error))?;
            self.settle(what)?;
        }
        Ok(to)
    }

    /// Claims a buffer and fills it with these values, again and again.
    ///
    /// # Errors
    /// As [`Memory::claim_filled`].
    pub fn claim_repeated<T: Pod>(
        &mut self,
        region: Region,
        what: &str,
        len: usize,
        values: &[T],
    ) -> Result<Ptr<T>, DeviceError> {
        let to = self.claim::<T>(region, what, len)?;
        let mut filled = values.len().min(len);
        // SAFETY: the buffer was just claimed with room for them.
        let copied =
            unsafe { result::memcpy_htod_async(to.address, &values[..filled], self.stream) };
        copied.map_err(|error| DeviceError::driver(what, error))?;
        // What is there already is doubled.
        while filled < len {
            let next = filled.min(len - filled);
            let num_bytes = next * size_of::<T>();
            // SAFETY: both halves lie in the buffer, one behind the other.
            let copied = unsafe {
                result::memcpy_dtod_async(to.at(filled).address, to.address, num_bytes, self.stream)
            };
            copied.map_err(|error| DeviceError::driver(what, error))?;
            filled += next;
        }
        self.settle(what)?;
        Ok(to)
    }

    /// Waits for what fills a buffer: queues of steps don't.
    fn settle(&self, what: &str) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as the memory.
        let waited = unsafe { result::stream::synchronize(self.stream) };
        waited.map_err(|error| DeviceError::driver(what, error))
    }

    /// Bytes that can still be held: what the budget leaves, where the device has as much free.
    ///
    /// # Errors
    /// If the driver does not say what is free.
    pub fn room(&self) -> Result<usize, DeviceError> {
        self.device.bind()?;
        let (free, _) = self.device.memory_info()?;
        Ok(self.budget.saturating_sub(self.num_bytes()).min(free))
    }

    /// Bytes that are held.
    pub fn num_bytes(&self) -> usize {
        self.held.iter().map(|held| held.num_bytes).sum()
    }

    /// Bytes by region, of those that hold anything.
    pub fn table(&self) -> Vec<(Region, usize)> {
        let mut table: Vec<(Region, usize)> = Vec::new();
        let mut held: Vec<&Held> = self.held.iter().collect();
        held.sort_by_key(|held| held.region);
        for held in held {
            match table.last_mut() {
                Some((region, sum)) if *region == held.region => *sum += held.num_bytes,
                _ => table.push((held.region, held.num_bytes)),
            }
        }
        table
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.device.bind().is_err() {
            return;
        }
        for held in &self.held {
            // SAFETY: the address came from `malloc_sync` and is given up once. A device that is lost refuses,
            // and then there is nothing left to give up.
            let _ = unsafe { result::free_sync(held.address) };
        }
        // SAFETY: it is destroyed once, and nothing is queued in it.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

/// Memory of the host that the device can copy from and to while the host goes on.
pub struct Pinned<T: Pod> {
    device: Device,
    address: *mut T,
    len: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl<T: Pod + Send> Send for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// A buffer of `len` zeros.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn zeroed(device: &Device, len: usize) -> Result<Pinned<T>, DeviceError> {
        device.bind()?;
        let num_bytes = (len * size_of::<T>()).max(1);
        // SAFETY: the memory is freed in `drop` and nowhere else.
        let address = unsafe { result::malloc_host(num_bytes, 0) };
        let address = address.map_err(|error| DeviceError::driver("pinned memory", error))?;
        // SAFETY: the memory was just claimed with this size.
        unsafe { address.cast::<u8>().write_bytes(0, num_bytes) };
        Ok(Pinned {
            device: device.clone(),
            address: address.cast(),
            len,
        })
    }

    /// Its values. Whoever copies to it from the device waits for the copy first.
    pub fn values(&self) -> &[T] {
        // SAFETY: the memory holds `len` values, and any bits are a value.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// Its values, to be changed. Whoever copies from it to the device waits for the copy first.
    pub fn values_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn address(&self) -> *mut T {
        self.address
    }
}

impl<T: Pod> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: it came from `malloc_host` and is freed once.
            let _ = unsafe { result::free_host(self.address.cast()) };
        }
    }
}
