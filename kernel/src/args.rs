//! What comes from Python, and what a fault of this package becomes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use rmq_ha_runs::record::HOST_SIZE;
use rmq_ha_runs::rules::may_panic;
use rmq_ha_runs::topics::{Queue, Topics};

/// How often each function has panicked in this process.
static FAULTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Returns a copy of the counts.
pub fn faults() -> BTreeMap<&'static str, u64> {
    FAULTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// The result of the work; None after a panic, which is counted.
///
/// The panic has written to the standard error where it happened.
fn caught<T>(name: &'static str, work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        may_panic(name);
        work()
    }));
    if result.is_err() {
        let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        *faults.entry(name).or_insert(0) += 1;
    }
    result.ok()
}

/// The result of a function that may leave its work to Python: None after a panic.
pub fn or_none<T>(
    name: &'static str,
    work: impl FnOnce() -> PyResult<Option<T>>,
) -> PyResult<Option<T>> {
    caught(name, work).unwrap_or(Ok(None))
}

/// The result of a function that has to give one: an ordinary exception after a panic.
///
/// PyO3 alone would raise a `PanicException`, which `except Exception` does not catch.
pub fn or_error<T>(name: &'static str, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    caught(name, work).unwrap_or_else(|| {
        Err(PyRuntimeError::new_err(format!(
            "the kernel failed in `{name}`; the standard error says where"
        )))
    })
}

/// The address and the port of a host as a record has them; `None` for an IPv6 host.
pub fn host(address: &Bound<'_, PyTuple>) -> Option<[u8; HOST_SIZE]> {
    let (ip, port): (Bound<'_, PyBytes>, i32) = address.extract().ok()?;
    let ip: [u8; 4] = ip.as_bytes().try_into().ok()?;
    [ip, port.to_be_bytes()].as_flattened().try_into().ok()
}

/// The names of topics, made once for Python.
pub struct Names(Vec<Py<PyString>>);

impl Names {
    pub fn new(py: Python<'_>, topics: &Topics) -> Self {
        let name = |topic: &rmq_ha_runs::topics::Topic| PyString::new(py, &topic.name).unbind();
        Self(topics.all().iter().map(name).collect())
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.iter().map(|name| name.clone_ref(py)).collect())
    }

    pub fn all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0)
    }

    pub fn get<'py>(&self, py: Python<'py>, topic: u32) -> Bound<'py, PyString> {
        match self.0.get(topic as usize) {
            Some(name) => name.bind(py).clone(),
            None => PyString::new(py, ""),
        }
    }

    /// Topic and queue id of a queue.
    pub fn key<'py>(&self, py: Python<'py>, queue: Queue) -> PyResult<Bound<'py, PyTuple>> {
        (self.get(py, queue.0), queue.1).into_pyobject(py)
    }
}

/// Bytes that are UTF-8, as all texts of a run are.
pub fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, bytes)
}
