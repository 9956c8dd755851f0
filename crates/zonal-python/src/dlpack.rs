//! DLPack's capsules over pages. The structures are those of `dlpack.h` 0.8 and 1.0.
//!
//! # Invariants
//! - **DL-1** A managed tensor is the first field of its [`Export`], which is boxed and never
//!   moves; its shape and its lease are in the same box. The deleter frees the box, once.
//! - **DL-2** A capsule that still has the name it was made with has not been taken by a reader, so
//!   its tensor is the capsule's to delete. Readers rename what they take, and call the deleter.

use std::ffi::{CStr, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::fault::Fault;
use crate::pages::Hold;

/// Memory of the CPU (`kDLCPU`), device 0.
pub const CPU: (i32, i32) = (1, 0);

const OLD: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// Types of elements: name, code and bits of DLPack.
const KINDS: [(&str, u8, u8); 17] = [
    ("int8", 0, 8),
    ("int16", 0, 16),
    ("int32", 0, 32),
    ("int64", 0, 64),
    ("uint8", 1, 8),
    ("uint16", 1, 16),
    ("uint32", 1, 32),
    ("uint64", 1, 64),
    ("float16", 2, 16),
    ("float32", 2, 32),
    ("float64", 2, 64),
    ("bfloat16", 4, 16),
    ("complex64", 5, 64),
    ("complex128", 5, 128),
    ("bool", 6, 8),
    ("float8_e4m3fn", 10, 8),
    ("float8_e5m2", 12, 8),
];

/// A type of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    name: &'static str,
    code: u8,
    bits: u8,
}

impl Kind {
    /// The type of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Kind, Fault> {
        let found = KINDS.iter().find(|(known, ..)| *known == name);
        let Some(&(name, code, bits)) = found else {
            let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
            let what = format!("dtype: '{name}'; there are {}", known.join(", "));
            return Err(Fault::new("ArgumentError", what));
        };
        Ok(Kind { name, code, bits })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }

    /// Bytes of all elements of a shape.
    ///
    /// # Errors
    /// A negative number, or more bytes than there can be.
    pub fn bytes_of(self, shape: &[i64]) -> Result<usize, Fault> {
        let mut bytes = Some(self.bytes());
        for &length in shape {
            let Ok(length) = usize::try_from(length) else {
                let what = format!("shape: {shape:?}; expected numbers from 0");
                return Err(Fault::new("ArgumentError", what));
            };
            bytes = bytes.and_then(|bytes| bytes.checked_mul(length));
        }
        let too_many = || Fault::new("ArgumentError", format!("shape: {shape:?} is too large"));
        bytes.ok_or_else(too_many)
    }
}

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

const _: () = assert!(size_of::<DlTensor>() == 48);
const _: () = assert!(size_of::<Managed>() == 64);
const _: () = assert!(size_of::<ManagedVersioned>() == 80);

/// A managed tensor with what it needs.
#[repr(C)]
struct Export<M> {
    managed: M,
    /// Lengths and strides.
    numbers: Box<[i64]>,
    _hold: Hold,
}

/// A capsule with a view of what is held, `offset` bytes into it.
///
/// # Errors
/// None but those of Python.
pub fn capsule<'py>(
    py: Python<'py>,
    hold: Hold,
    offset: usize,
    shape: &[i64],
    kind: Kind,
    versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let mut numbers: Box<[i64]> = shape.iter().copied().chain(strides(shape)).collect();
    let lengths = numbers.as_mut_ptr();
    let tensor = DlTensor {
        // An address that the library handed out, and nothing here dereferences (PY-1).
        data: std::ptr::with_exposed_provenance_mut(hold.core().address() + offset),
        device: Device { kind: CPU.0, id: CPU.1 },
        ndim: shape.len() as i32,
        dtype: DataType { code: kind.code, bits: kind.bits, lanes: 1 },
        shape: lengths,
        strides: lengths.wrapping_add(shape.len()),
        byte_offset: 0,
    };
    let context = std::ptr::null_mut();
    let (pointer, name, destroy): (*mut c_void, &CStr, ffi::PyCapsule_Destructor) = if versioned {
        let deleter = Some(delete::<ManagedVersioned> as unsafe extern "C" fn(_));
        let (major, minor, flags) = (1, 0, 0);
        let managed = ManagedVersioned { major, minor, context, deleter, flags, tensor };
        let export = Box::new(Export { managed, numbers, _hold: hold });
        (Box::into_raw(export).cast(), VERSIONED, destroy_versioned)
    } else {
        let deleter = Some(delete::<Managed> as unsafe extern "C" fn(_));
        let managed = Managed { tensor, context, deleter };
        let export = Box::new(Export { managed, numbers, _hold: hold });
        (Box::into_raw(export).cast(), OLD, destroy_old)
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor is for this name.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy)) };
    if capsule.is_null() {
        match versioned {
            // SAFETY: the box made above, which nobody else has (DL-1).
            true => unsafe { delete::<ManagedVersioned>(pointer.cast()) },
            // SAFETY: as above.
            false => unsafe { delete::<Managed>(pointer.cast()) },
        }
    }
    // SAFETY: a new reference, or null with an exception set.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?;
    Ok(object.cast_into::<PyCapsule>()?)
}

/// Elements between neighbours of each dimension, row by row.
fn strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1_i64; shape.len()];
    for at in (0..shape.len().saturating_sub(1)).rev() {
        strides[at] = strides[at + 1].saturating_mul(shape[at + 1].max(1));
    }
    strides
}

/// The deleter of a managed tensor. May be called by any thread, without the GIL.
///
/// # Safety
/// 1. `managed` is the first field of a box of `Export<M>`, and this is its only call.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: (1), and DL-1.
    drop(unsafe { Box::from_raw(managed.cast::<Export<M>>()) });
}

/// Deletes the tensor of a capsule that nobody took.
///
/// # Safety
/// 1. `capsule` is a capsule, at its end, whose pointer is an `Export<M>` while its name is `name`.
unsafe fn destroy<M>(capsule: *mut ffi::PyObject, name: &'static CStr) {
    // SAFETY: (1).
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: (1): it has this name, which was asked just now.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    // SAFETY: DL-2: nobody took it, so this is the deleter's only call.
    unsafe { delete::<M>(pointer.cast()) };
}

unsafe extern "C" fn destroy_old(capsule: *mut ffi::PyObject) {
    // SAFETY: set by `capsule` for capsules of this name only.
    unsafe { destroy::<Managed>(capsule, OLD) };
}

unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: set by `capsule` for capsules of this name only.
    unsafe { destroy::<ManagedVersioned>(capsule, VERSIONED) };
}
