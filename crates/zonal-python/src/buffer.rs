//! Buffers, and views of them with a shape and a type.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::dlpack::{self, Kind};
use crate::fault::Fault;
use crate::pages::{Core, Hold, Owned};

/// Keeps pages while a view of Python's exists.
#[pyclass(frozen, module = "zonal._native")]
#[derive(Debug)]
pub struct Lease {
    _hold: Hold,
}

/// Bytes of a pool.
#[pyclass(frozen, module = "zonal._native", subclass)]
#[derive(Debug)]
pub struct Buffer {
    core: Arc<Core>,
}

impl Buffer {
    /// The first `bytes` of these pages.
    pub fn new(owned: Owned, bytes: usize) -> Buffer {
        Buffer { core: Arc::new(Core::new(owned, bytes)) }
    }
}

#[pymethods]
impl Buffer {
    /// What `Pool.alloc` of the package made, as an object of a subclass.
    #[new]
    fn take(made: &Made) -> PyResult<Buffer> {
        let taken = made.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(taken.ok_or_else(|| Fault::new("PoolError", "these pages have a buffer already"))?)
    }

    /// Address of the first byte, and a lease: valid as long as the lease.
    fn lease(&self) -> PyResult<(usize, Lease)> {
        let hold = self.core.lease()?;
        Ok((self.core.address(), Lease { _hold: hold }))
    }

    /// Frees the pages. Nothing happens if they were freed.
    fn release(&self) -> PyResult<()> {
        match self.core.release() {
            0 => Ok(()),
            views => Err(PyBufferError::new_err(format!(
                "{views} views of the buffer exist: arrays, memoryviews or tensors; delete them \
                 first"
            ))),
        }
    }

    #[getter]
    fn released(&self) -> bool {
        self.core.is_released()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.core.bytes()
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.core.capacity()
    }

    #[getter]
    fn address(&self) -> usize {
        self.core.address()
    }

    #[getter]
    fn views(&self) -> usize {
        self.core.leases()
    }

    fn __len__(&self) -> usize {
        self.core.bytes()
    }

    /// A view with a shape and a type, for DLPack.
    #[pyo3(signature = (shape, dtype, offset=0))]
    fn tensor(&self, shape: Vec<i64>, dtype: &str, offset: usize) -> PyResult<Tensor> {
        let kind = Kind::named(dtype)?;
        let bytes = kind.bytes_of(&shape)?;
        if offset.checked_add(bytes).is_none_or(|end| end > self.core.bytes()) {
            let what = format!(
                "{shape:?} of {dtype} from byte {offset} are {bytes} bytes; the buffer has {}",
                self.core.bytes()
            );
            return Err(Fault::new("ArgumentError", what).into());
        }
        if !(self.core.address() + offset).is_multiple_of(kind.bytes()) {
            let what = format!("offset: {offset}; expected a multiple of {}", kind.bytes());
            return Err(Fault::new("ArgumentError", what).into());
        }
        Ok(Tensor { core: Arc::clone(&self.core), shape, kind, offset })
    }
}

/// Pages on their way into a [`Buffer`].
#[pyclass(frozen, module = "zonal._native")]
#[derive(Debug)]
pub struct Made(Mutex<Option<Buffer>>);

impl Made {
    /// A buffer to be.
    pub fn new(buffer: Buffer) -> Made {
        Made(Mutex::new(Some(buffer)))
    }
}

/// A view of a buffer with a shape and a type, row by row without gaps.
#[pyclass(frozen, module = "zonal._native")]
#[derive(Debug)]
pub struct Tensor {
    core: Arc<Core>,
    shape: Vec<i64>,
    kind: Kind,
    offset: usize,
}

#[pymethods]
impl Tensor {
    /// A capsule of DLPack: version 1 for readers that ask for it, 0 for others.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Py<PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err(
                "stream: memory of the CPU has none; expected None",
            ));
        }
        if dl_device.is_some_and(|device| device != dlpack::CPU) {
            return Err(PyBufferError::new_err("dl_device: the memory is the CPU's, (1, 0)"));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("copy: views are made, not copies; copy the view"));
        }
        let hold = self.core.lease()?;
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        dlpack::capsule(py, hold, self.offset, &self.shape, self.kind, versioned)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.shape.clone()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.kind.name()
    }

    /// Its bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.kind.bytes_of(&self.shape)?)
    }

    fn __repr__(&self) -> String {
        format!("<zonal.Tensor {:?} of {}>", self.shape, self.kind.name())
    }
}
