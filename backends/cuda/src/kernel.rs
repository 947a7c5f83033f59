//! A kernel as a value: its arguments by name, in the order of the `.cu` file. The driver checks no argument's
//! type, so that a test compares each list with the file.

use crate::memory::Ptr;

/// A kernel with its arguments.
pub trait Kernel {
    /// Its name.
    const SYMBOL: &'static str;
    /// The file that it is in, without `.cu`.
    const FILE: &'static str;
    /// The names and the types of its arguments, as they stand in the file.
    const SIGNATURE: &'static [(&'static str, &'static str)];
    /// The arguments.
    fn args(&self) -> Args;
}

/// The most arguments that a kernel has.
const ARGS_MAX: usize = 32;

/// Arguments of a launch, each in eight bytes of its own.
#[derive(Clone, Debug)]
pub struct Args {
    values: [u64; ARGS_MAX],
    len: usize,
}

impl Args {
    /// None yet.
    #[expect(
        clippy::new_without_default,
        reason = "arguments are pushed by `kernel!`"
    )]
    pub fn new() -> Args {
        Args {
            values: [0; ARGS_MAX],
            len: 0,
        }
    }

    /// Adds one.
    pub fn push(&mut self, arg: impl KernelArg) {
        self.values[self.len] = arg.bits();
        self.len += 1;
    }

    /// Their addresses, as a launch takes them.
    pub(crate) fn addresses(&mut self) -> Vec<*mut std::ffi::c_void> {
        let values = self.values[..self.len].iter_mut();
        values
            .map(|value| std::ptr::from_mut(value).cast())
            .collect()
    }
}

/// What can be an argument.
pub trait KernelArg: Copy {
    /// Its type in a `.cu` file, without `const` and `__restrict__`.
    const CUDA: &'static str;
    /// Its bytes, the first of eight.
    fn bits(self) -> u64;
}

impl KernelArg for f32 {
    const CUDA: &'static str = "float";
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl KernelArg for i32 {
    const CUDA: &'static str = "int";
    fn bits(self) -> u64 {
        u64::from(self as u32)
    }
}

impl KernelArg for u32 {
    const CUDA: &'static str = "unsigned";
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl KernelArg for u64 {
    const CUDA: &'static str = "unsigned long long";
    fn bits(self) -> u64 {
        self
    }
}

macro_rules! pointers {
    ($($element:ty = $cuda:literal),* $(,)?) => {
        $(impl KernelArg for Ptr<$element> {
            const CUDA: &'static str = $cuda;
            fn bits(self) -> u64 {
                self.address()
            }
        })*
    };
}

pointers! {
    f32 = "float*",
    i8 = "signed char*",
    u8 = "unsigned char*",
    u16 = "unsigned short*",
    i32 = "int*",
    u32 = "unsigned*",
    u64 = "unsigned long long*",
}

/// An argument that is a pointer to a struct: names the struct as the `.cu` file does.
#[macro_export]
#[doc(hidden)]
macro_rules! pointer_to {
    ($element:ty = $cuda:literal) => {
        impl $crate::kernel::KernelArg for $crate::memory::Ptr<$element> {
            const CUDA: &'static str = $cuda;
            fn bits(self) -> u64 {
                self.address()
            }
        }
    };
}

/// Declares a kernel: `Name = "symbol" in "file" { argument: type, ... }`.
#[macro_export]
#[doc(hidden)]
macro_rules! kernel {
    (
        $(#[$doc:meta])*
        $vis:vis $name:ident = $symbol:literal in $file:literal {
            $($arg:ident : $ty:ty),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name {
            $($vis $arg: $ty),*
        }

        impl $crate::kernel::Kernel for $name {
            const SYMBOL: &'static str = $symbol;
            const FILE: &'static str = $file;
            const SIGNATURE: &'static [(&'static str, &'static str)] = &[
                $((stringify!($arg), <$ty as $crate::kernel::KernelArg>::CUDA)),*
            ];
            fn args(&self) -> $crate::kernel::Args {
                let mut args = $crate::kernel::Args::new();
                $(args.push(self.$arg);)*
                args
            }
        }
    };
}
