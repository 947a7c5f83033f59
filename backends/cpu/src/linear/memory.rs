//! Memory for packed weights: anonymous, zeroed, on huge pages where the system gives them. One thread
//! reads about 1.4 times faster from 2 MiB pages than from 4 KiB ones.

use bytemuck::Pod;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A fixed array in memory of its own, aligned to at least 64 bytes.
pub struct HugeBuffer<T: Pod> {
    start: NonNull<T>,
    len: usize,
    map_len: usize,
    owns: PhantomData<T>,
}

// SAFETY: the buffer owns plain data and hands out references by the usual rules.
unsafe impl<T: Pod + Send> Send for HugeBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Pod + Sync> Sync for HugeBuffer<T> {}

impl<T: Pod> HugeBuffer<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// If the system has no memory left: nothing can be served without its weights.
    pub fn zeroed(len: usize) -> HugeBuffer<T> {
        let num_bytes = len * size_of::<T>();
        if num_bytes == 0 {
            return HugeBuffer {
                start: NonNull::dangling(),
                len,
                map_len: 0,
                owns: PhantomData,
            };
        }
        let huge = 2 << 20;
        let map_len = if num_bytes >= huge {
            num_bytes.next_multiple_of(huge)
        } else {
            num_bytes
        };
        // SAFETY: a new private anonymous mapping; no existing memory is touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(
            start != libc::MAP_FAILED,
            "no memory for {num_bytes} bytes of weights"
        );
        #[cfg(target_os = "linux")]
        // SAFETY: advice on the mapping just made. If it is refused, pages are small: slower, not wrong.
        unsafe {
            libc::madvise(start, map_len, libc::MADV_HUGEPAGE);
        }
        let start = NonNull::new(start.cast()).expect("a mapping never starts at 0");
        HugeBuffer {
            start,
            len,
            map_len,
            owns: PhantomData,
        }
    }

    /// The values.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the mapping holds `len` values, zeroed or written through `as_mut_slice`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The values, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Pod> Drop for HugeBuffer<T> {
    fn drop(&mut self) {
        if self.map_len > 0 {
            // SAFETY: this mapping was made by `zeroed` and nothing refers to it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.map_len) };
        }
    }
}
