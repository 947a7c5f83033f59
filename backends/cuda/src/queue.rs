//! A queue of work for a device: kernels, copies, events. What is queued runs in order, while the host goes on.

use crate::device::Device;
use crate::error::DeviceError;
use crate::kernel::Kernel;
use crate::memory::{Pinned, Ptr};
use crate::program::Program;
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::ops::Range;
use std::sync::Arc;

/// How a kernel's threads are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// A stream, with the kernels that can be launched on it.
pub struct Queue {
    device: Device,
    program: Arc<Program>,
    stream: sys::CUstream,
    blocking: bool,
}

// SAFETY: a stream can be used from any thread, by one at a time.
unsafe impl Send for Queue {}

impl Queue {
    /// An empty queue. Where it is `blocking`, each operation is waited for, so that an error is that of the
    /// operation which failed.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn new(
        device: &Device,
        program: &Arc<Program>,
        blocking: bool,
    ) -> Result<Queue, DeviceError> {
        device.bind()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(Queue {
            device: device.clone(),
            program: program.clone(),
            stream: stream.map_err(|error| DeviceError::driver("creating a stream", error))?,
            blocking,
        })
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Launches a kernel. One without blocks is none.
    ///
    /// # Errors
    /// If the driver refuses, by the kernel's name.
    pub fn launch<K: Kernel>(&self, kernel: &K, shape: Shape) -> Result<(), DeviceError> {
        if shape.grid.contains(&0) {
            return Ok(());
        }
        let function = self.program.function(K::SYMBOL);
        let mut args = kernel.args();
        let triple = |[x, y, z]: [u32; 3]| (x, y, z);
        // SAFETY: the function belongs to a loaded module. Its arguments are as many and of such types as its
        // file says, which a test holds, and outlive the call, which copies them. What they point to was planned
        // with the model, and kernels index it by ids of a checked plan.
        let launched = unsafe {
            result::launch_kernel(
                function,
                triple(shape.grid),
                triple(shape.block),
                shape.shared,
                self.stream,
                &mut args.addresses(),
            )
        };
        self.after(K::SYMBOL, launched)
    }

    /// Copies `range` of a pinned buffer to the device. The buffer may not change until the copy was waited for.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn upload<T: Pod>(
        &self,
        what: &str,
        from: &Pinned<T>,
        range: Range<usize>,
        to: Ptr<T>,
    ) -> Result<(), DeviceError> {
        let from = &from.values()[range];
        // SAFETY: the source outlives the copy, since pinned memory is only given up after a wait; the target
        // was claimed with room for it.
        let copied = unsafe { result::memcpy_htod_async(to.address(), from, self.stream) };
        self.after(what, copied)
    }

    /// Copies `len` elements to the beginning of a pinned buffer. They are there once the copy was waited for.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn download<T: Pod>(
        &self,
        what: &str,
        from: Ptr<T>,
        to: &mut Pinned<T>,
        len: usize,
    ) -> Result<(), DeviceError> {
        assert!(len <= to.len(), "{what}: {len} of {} elements", to.len());
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the slice is only the target's address and length here: its values are read after a wait.
        let to = unsafe { std::slice::from_raw_parts_mut(to.address(), len) };
        // SAFETY: as for uploads.
        let copied = unsafe { result::memcpy_dtoh_async(to, from.address(), self.stream) };
        self.after(what, copied)
    }

    /// Copies on the device.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn copy<T: Pod>(
        &self,
        what: &str,
        from: Ptr<T>,
        to: Ptr<T>,
        len: usize,
    ) -> Result<(), DeviceError> {
        let num_bytes = len * size_of::<T>();
        // SAFETY: both were claimed with room for it.
        let copied = unsafe {
            result::memcpy_dtod_async(to.address(), from.address(), num_bytes, self.stream)
        };
        self.after(what, copied)
    }

    /// Sets every byte of `len` elements.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn fill<T: Pod>(
        &self,
        what: &str,
        to: Ptr<T>,
        byte: u8,
        len: usize,
    ) -> Result<(), DeviceError> {
        let num_bytes = len * size_of::<T>();
        // SAFETY: the target was claimed with room for it.
        let filled = unsafe { result::memset_d8_async(to.address(), byte, num_bytes, self.stream) };
        self.after(what, filled)
    }

    /// Waits until everything that was queued has run.
    ///
    /// # Errors
    /// What went wrong in any of it.
    pub fn wait(&self, what: &str) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as the queue.
        let waited = unsafe { result::stream::synchronize(self.stream) };
        waited.map_err(|error| DeviceError::driver(what, error))
    }

    /// Notes in an event how far the queue is.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn record(&self, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both live.
        let recorded = unsafe { result::event::record(event.event, self.stream) };
        recorded.map_err(|error| DeviceError::driver("recording an event", error))
    }

    /// Records what `work` queues as a graph; nothing of it runs.
    ///
    /// # Errors
    /// Those of the work, or if the driver can't make a graph of it.
    pub fn capture(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Graph, DeviceError> {
        let failed = |error| DeviceError::driver(what, error);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(failed)?;
        let done = work();
        // SAFETY: the stream is capturing; also where the work failed, a capture has to be ended.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        done?;
        let graph = graph.map_err(failed)?;
        // SAFETY: the graph was just made, and is destroyed once, below.
        let executable =
            unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: an executable graph does not need the graph that it was made of.
        let _ = unsafe { result::graph::destroy(graph) };
        Ok(Graph {
            device: self.device.clone(),
            executable: executable.map_err(failed)?,
        })
    }

    /// Queues all of a graph.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn replay(&self, what: &str, graph: &Graph) -> Result<(), DeviceError> {
        // SAFETY: both live; what the graph's kernels point to lives as long as the backend.
        let launched = unsafe { result::graph::launch(graph.executable, self.stream) };
        self.after(what, launched)
    }

    /// Whether operations are waited for one by one.
    pub fn is_blocking(&self) -> bool {
        self.blocking
    }

    fn after(
        &self,
        op: &str,
        done: Result<(), cudarc::driver::DriverError>,
    ) -> Result<(), DeviceError> {
        done.map_err(|error| DeviceError::driver(op, error))?;
        if self.blocking { self.wait(op) } else { Ok(()) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the stream is waited for and destroyed once; a device that is lost refuses, and then
            // nothing runs any more.
            let _ = unsafe { result::stream::synchronize(self.stream) };
            // SAFETY: as above.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}

/// A place in a queue that can be waited for.
pub struct Event {
    device: Device,
    event: sys::CUevent,
}

// SAFETY: an event can be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// An event that was never recorded.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn new(device: &Device) -> Result<Event, DeviceError> {
        device.bind()?;
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Event {
            device: device.clone(),
            event: event.map_err(|error| DeviceError::driver("creating an event", error))?,
        })
    }

    /// Waits until the queue has come as far as it was when the event was recorded.
    ///
    /// # Errors
    /// What went wrong on the device until then.
    pub fn wait(&self, what: &str) -> Result<(), DeviceError> {
        // SAFETY: the event lives.
        let waited = unsafe { result::event::synchronize(self.event) };
        waited.map_err(|error| DeviceError::driver(what, error))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: it is destroyed once.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}

/// Work that was recorded, to be queued as a whole.
pub struct Graph {
    device: Device,
    executable: sys::CUgraphExec,
}

// SAFETY: a graph can be launched from any thread, by one at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: it is destroyed once, and the driver keeps what still runs.
            let _ = unsafe { result::graph::exec_destroy(self.executable) };
        }
    }
}
