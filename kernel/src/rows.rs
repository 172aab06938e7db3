//! Rows: the records of a run, for Python.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyTuple};
use rmq_ha_runs::index::{File, Header, Numbers, put};
use rmq_ha_runs::record::Record;
use rmq_ha_runs::run::Run;
use rmq_ha_runs::units::units;
use rmq_ha_runs::walk::{Limits, walk};
use rmq_ha_runs::{answers::answers, topics::Queue};

use crate::args::{Names, or_error, or_none, text};
use crate::buffer::with_bytes;

/// Records that follow each other in the log.
#[pyclass(frozen, sequence, module = "rmq_ha_kernel")]
pub struct Rows {
    run: Run,
    names: Names,
}

impl Rows {
    pub fn new(run: Run, names: Names) -> Self {
        Self { run, names }
    }

    pub fn walk(
        data: &Bound<'_, PyBytes>,
        at: usize,
        position: i64,
        limits: &Limits,
    ) -> Option<Self> {
        let run = walk(data.as_bytes(), at, position, limits);
        (!run.records.is_empty()).then(|| Self::of(data.py(), run))
    }

    fn of(py: Python<'_>, run: Run) -> Self {
        let names = Names::new(py, &run.topics);
        Self { run, names }
    }

    pub fn concat(parts: &Bound<'_, PySequence>) -> PyResult<Option<Self>> {
        let mut whole = Run::default();
        for part in parts.try_iter()? {
            let part = part?;
            let Ok(rows) = part.cast::<Self>() else {
                return Ok(None);
            };
            whole.append(&rows.get().run);
        }
        let is_empty = whole.records.is_empty();
        Ok((!is_empty).then(|| Self::of(parts.py(), whole)))
    }

    fn row<'py>(&self, py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyTuple>> {
        let texts = &self.run.texts;
        (
            self.names.get(py, record.topic),
            record.queue_id,
            record.position,
            record.size,
            record.code,
            record.stamp,
            record.number,
            text(py, record.sought.keys.of(texts))?,
            text(py, record.sought.uniq_key.of(texts))?,
            record.sys_flag,
            record.prepared,
            text(py, record.text.of(texts))?,
        )
            .into_pyobject(py)
    }

    fn key<'py>(&self, py: Python<'py>, queue: Queue) -> PyResult<Bound<'py, PyTuple>> {
        self.names.key(py, queue)
    }
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> PyResult<usize> {
        or_error("Rows.__len__", || Ok(self.run.records.len()))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyTuple>> {
        or_error("Rows.__getitem__", || {
            let count = self.run.records.len();
            let index = if index < 0 {
                index.checked_add_unsigned(count)
            } else {
                Some(index)
            };
            let place = index.and_then(|index| usize::try_from(index).ok());
            match place.and_then(|place| self.run.records.get(place)) {
                Some(record) => self.row(py, record),
                None => Err(PyIndexError::new_err("no row has this index")),
            }
        })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyResult<Iterator> {
        or_error("Rows.__iter__", || {
            Ok(Iterator {
                rows: slf.into(),
                next: 0,
            })
        })
    }

    #[getter]
    fn start(&self) -> PyResult<i64> {
        or_error("Rows.start", || Ok(self.run.start()))
    }

    #[getter]
    fn end(&self) -> PyResult<i64> {
        or_error("Rows.end", || Ok(self.run.end()))
    }

    #[getter]
    fn size(&self) -> PyResult<u64> {
        or_error("Rows.size", || Ok(self.run.size()))
    }

    #[getter]
    fn work(&self) -> PyResult<u64> {
        or_error("Rows.work", || Ok(self.run.work()))
    }

    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        or_error("Rows.topics", || self.names.all(py))
    }

    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        or_error("Rows.names", || {
            let counts = self.run.counts();
            counts
                .iter()
                .map(|(queue, ..)| self.key(py, *queue))
                .collect()
        })
    }

    /// Return the rows from one index up to another one.
    #[pyo3(signature = (first, end, /))]
    fn part(&self, py: Python<'_>, first: usize, end: usize) -> PyResult<Self> {
        or_error("Rows.part", || match self.run.part(first, end) {
            Some(run) => Ok(Self::of(py, run)),
            None => Err(PyIndexError::new_err("no rows are between these indexes")),
        })
    }

    /// Return the units of each queue, or None.
    fn units<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        or_none("Rows.units", || {
            let Some(found) = units(&self.run) else {
                return Ok(None);
            };
            let list = PyList::empty(py);
            for run in found {
                let units = PyBytes::new(py, &run.units);
                list.append((
                    self.key(py, run.queue)?,
                    run.first,
                    units,
                    run.begins,
                    run.reaches,
                ))?;
            }
            Ok(Some(list))
        })
    }

    /// Insert the keys into an IndexFile and return its new header, or None.
    #[pyo3(signature = (buffer, slots, room, header, reached, /))]
    fn index_put(
        &self,
        buffer: &Bound<'_, PyAny>,
        slots: u32,
        room: u64,
        header: Numbers,
        reached: i64,
    ) -> PyResult<Option<Numbers>> {
        // No None after a panic: that says that nothing is written.
        or_error("Rows.index_put", || {
            let found = with_bytes(buffer, |bytes| {
                let file = File { bytes, slots };
                put(&self.run, file, room, Header::from(header), reached)
            })?;
            Ok(found.map(Numbers::from))
        })
    }

    /// Return the frames that answer the sends of these records.
    #[pyo3(signature = (opaques, template, /))]
    fn answers<'py>(
        &self,
        py: Python<'py>,
        opaques: Vec<Option<i32>>,
        template: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        or_error("Rows.answers", || {
            let pieces: Vec<Bound<'py, PyBytes>> = template.extract()?;
            let Ok(pieces) = <[_; 5]>::try_from(pieces) else {
                return Err(PyValueError::new_err("a template has five pieces"));
            };
            let pieces = pieces.each_ref().map(|piece| piece.as_bytes());
            match answers(&self.run, &opaques, &pieces) {
                Some(frames) => Ok(PyBytes::new(py, &frames)),
                None => Err(PyValueError::new_err(
                    "there is not one opaque for each row",
                )),
            }
        })
    }

    /// Return for each queue how many records it has here, and their bytes.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyTuple>, u64, u64)>> {
        or_error("Rows.counts", || {
            let counts = self.run.counts().into_iter();
            counts
                .map(|(queue, count, size)| Ok((self.key(py, queue)?, count, size)))
                .collect()
        })
    }
}

/// Gives the rows one by one.
#[pyclass(module = "rmq_ha_kernel")]
pub struct Iterator {
    rows: Py<Rows>,
    next: usize,
}

#[pymethods]
impl Iterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        or_error("Iterator.__next__", || {
            let rows = self.rows.get();
            let Some(record) = rows.run.records.get(self.next) else {
                return Ok(None);
            };
            self.next += 1;
            rows.row(py, record).map(Some)
        })
    }
}
