//! `rmq_ha_kernel`: the second maker of runs. `rmq_ha.base.runs.face` says what each function means.

#![deny(unsafe_code)] // and one exception, in `buffer`

use pyo3::prelude::*;

mod args;
mod buffer;
mod rows;
mod sends;

#[pymodule]
mod rmq_ha_kernel {
    use std::collections::BTreeMap;

    use super::*;
    use pyo3::types::{PyBytes, PySequence};

    #[pymodule_export]
    use super::rows::Rows;
    #[pymodule_export]
    use super::sends::Sends;

    /// The version of the face for which this package is made.
    #[pymodule_export]
    const VERSION: u32 = 2;

    /// Return the ordinary sends at the front of a chunk, or None.
    #[pyfunction]
    #[pyo3(signature = (data, at, max_header, /))]
    fn cut(data: &Bound<'_, PyBytes>, at: usize, max_header: usize) -> PyResult<Option<Sends>> {
        args::or_none("cut", || Ok(Sends::cut(data, at, max_header)))
    }

    /// Return the ordinary records at the front of a stretch of the log, or None.
    #[pyfunction]
    #[pyo3(signature = (data, at, position, max_count, max_work, check_crc, gap=0, /))]
    fn walk(
        data: &Bound<'_, PyBytes>,
        at: usize,
        position: i64,
        max_count: u64,
        max_work: u64,
        check_crc: bool,
        gap: usize,
    ) -> PyResult<Option<Rows>> {
        let limits = rmq_ha_runs::walk::Limits {
            most_records: usize::try_from(max_count).unwrap_or(usize::MAX),
            most_work: max_work,
            checks_crc: check_crc,
            gap,
        };
        args::or_none("walk", || Ok(Rows::walk(data, at, position, &limits)))
    }

    /// Return the rows of all parts as one, or None.
    #[pyfunction]
    #[pyo3(signature = (parts, /))]
    fn concat(parts: &Bound<'_, PySequence>) -> PyResult<Option<Rows>> {
        args::or_none("concat", || Rows::concat(parts))
    }

    /// Return how often each function has failed in this process, by its name.
    #[pyfunction]
    fn faults() -> BTreeMap<&'static str, u64> {
        args::faults()
    }

    /// Break one rule, for a test; return whether there is one of that name.
    #[cfg(feature = "planted")]
    #[pyfunction]
    fn plant(name: &str) -> bool {
        rmq_ha_runs::rules::plant(name)
    }

    /// Make a place panic, for a test, and no other.
    #[cfg(feature = "planted")]
    #[pyfunction]
    fn plant_panic(place: &str) {
        rmq_ha_runs::rules::plant_panic(place);
    }

    /// Return the names of all rules.
    #[cfg(feature = "planted")]
    #[pyfunction]
    fn rules() -> Vec<&'static str> {
        rmq_ha_runs::rules::NAMES.to_vec()
    }
}
