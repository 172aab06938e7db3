//! The one place where this package trusts Python's memory.

use std::cell::Cell;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Calls `work` with the writable bytes of a buffer, such as a memory map.
///
/// No Python runs while `work` does, and no other thread writes: this thread is attached to the
/// interpreter, and whoever holds a view of the same map is one thread (the reactor's).
pub fn with_bytes<T>(
    object: &Bound<'_, PyAny>,
    work: impl FnOnce(&[Cell<u8>]) -> T,
) -> PyResult<T> {
    let buffer = PyBuffer::<u8>::get(object)?;
    if buffer.readonly() {
        return Err(PyBufferError::new_err("the buffer cannot be written"));
    }
    let Some(bytes) = buffer.as_slice_ptr() else {
        return Err(PyBufferError::new_err("the buffer is not in one piece"));
    };
    // SAFETY: the buffer is contiguous and writable, its memory stays where it is as long as
    // `buffer` lives, and a Cell has the layout of its content and allows others to write.
    #[allow(unsafe_code)]
    let cells = unsafe { &*(bytes.as_ptr() as *const [Cell<u8>]) };
    Ok(work(cells))
}
