//! Sends: what `cut` takes from a chunk, for Python.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use rmq_ha_runs::bytes::Span;
use rmq_ha_runs::cut::{Cut, Send, cut};
use rmq_ha_runs::layout::{Layout, Place, lay_out};

use crate::args::{Names, host, or_error, or_none, text};
use crate::rows::Rows;

const JSON: u8 = 0;
/// Bytes of a frame before its header.
const WORDS: usize = 8;

/// Kind of the header, header and body.
type Frame<'py> = (u8, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Ordinary sends that arrived one behind the other.
#[pyclass(frozen, sequence, module = "rmq_ha_kernel")]
pub struct Sends {
    cut: Cut,
    data: Py<PyBytes>,
    names: Names,
}

impl Sends {
    pub fn cut(data: &Bound<'_, PyBytes>, at: usize, max_header: usize) -> Option<Self> {
        cut(data.as_bytes(), at, max_header).map(|found| Self::of(data, found))
    }

    fn of(data: &Bound<'_, PyBytes>, cut: Cut) -> Self {
        Self {
            names: Names::new(data.py(), &cut.topics),
            data: data.clone().unbind(),
            cut,
        }
    }

    fn text<'py>(&self, py: Python<'py>, span: Span) -> PyResult<Bound<'py, PyString>> {
        text(py, span.of(&self.cut.texts))
    }

    fn bytes<'py>(&self, py: Python<'py>, span: Span) -> Bound<'py, PyBytes> {
        PyBytes::new(py, span.of(self.data.as_bytes(py)))
    }

    fn draft<'py>(
        &self,
        py: Python<'py>,
        send: &Send,
        born: &Bound<'py, PyAny>,
        store: &Bound<'py, PyAny>,
        tail: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut stored = send.text.of(&self.cut.texts).to_vec();
        let is_first = usize::from(stored.is_empty());
        stored.extend_from_slice(tail.as_bytes().get(is_first..).unwrap_or_default());
        let sought = &send.sought;
        let tags = match sought.tags.len {
            0 => None,
            _ => Some(self.text(py, sought.tags)?),
        };
        let values = [
            self.names.get(py, send.topic).into_any(),
            send.queue_id.into_pyobject(py)?.into_any(),
            self.bytes(py, send.body).into_any(),
            born.clone(),
            store.clone(),
            send.born_timestamp.into_pyobject(py)?.into_any(),
            send.flag.into_pyobject(py)?.into_any(),
            send.sys_flag.into_pyobject(py)?.into_any(),
            send.reconsume_times.into_pyobject(py)?.into_any(),
            0_i32.into_pyobject(py)?.into_any(),
            self.text(py, sought.keys)?.into_any(),
            self.text(py, sought.uniq_key)?.into_any(),
            tags.into_pyobject(py)?.into_any(),
            text(py, &stored)?.into_any(),
        ];
        PyTuple::new(py, values)
    }
}

#[pymethods]
impl Sends {
    fn __len__(&self) -> PyResult<usize> {
        or_error("Sends.__len__", || Ok(self.cut.sends.len()))
    }

    #[getter]
    fn end(&self) -> PyResult<usize> {
        or_error("Sends.end", || {
            Ok(self.cut.sends.last().map_or(0, |send| send.body.end()))
        })
    }

    #[getter]
    fn size(&self) -> PyResult<usize> {
        or_error("Sends.size", || {
            let frame = |send: &Send| WORDS + send.header.len + send.body.len;
            Ok(self.cut.sends.iter().map(frame).sum())
        })
    }

    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        or_error("Sends.topics", || self.names.all(py))
    }

    /// Return the sends from one number up to another one.
    #[pyo3(signature = (first, end, /))]
    fn part(&self, py: Python<'_>, first: usize, end: usize) -> PyResult<Self> {
        or_error("Sends.part", || match self.cut.part(first, end) {
            Some(part) => Ok(Self::of(self.data.bind(py), part)),
            None => Err(PyIndexError::new_err("no sends are between these numbers")),
        })
    }

    /// Return how many of the first sends name a queue that exists.
    #[pyo3(signature = (queues, /))]
    fn fit(&self, queues: Vec<i64>) -> PyResult<usize> {
        or_error("Sends.fit", || Ok(self.cut.fit(&queues)))
    }

    /// Return the opaque of each send; None for a one-way send.
    fn opaques(&self) -> PyResult<Vec<Option<i32>>> {
        or_error("Sends.opaques", || {
            Ok(self.cut.sends.iter().map(|send| send.opaque).collect())
        })
    }

    /// Return topic and UNIQ_KEY of each send.
    fn uniq_keys<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>> {
        or_error("Sends.uniq_keys", || {
            let sends = self.cut.sends.iter();
            sends
                .map(|send| {
                    let key = self.text(py, send.sought.uniq_key)?;
                    Ok((self.names.get(py, send.topic), key))
                })
                .collect()
        })
    }

    /// Return kind, header and body of each send.
    fn frames<'py>(&self, py: Python<'py>) -> PyResult<Vec<Frame<'py>>> {
        or_error("Sends.frames", || {
            let sends = self.cut.sends.iter();
            Ok(sends
                .map(|send| (JSON, self.bytes(py, send.header), self.bytes(py, send.body)))
                .collect())
        })
    }

    /// Return what the general encoder takes.
    #[pyo3(signature = (born, store, tail, /))]
    fn drafts<'py>(
        &self,
        py: Python<'py>,
        born: &Bound<'py, PyAny>,
        store: &Bound<'py, PyAny>,
        tail: &str,
    ) -> PyResult<Bound<'py, PyList>> {
        or_error("Sends.drafts", || {
            let list = PyList::empty(py);
            for send in &self.cut.sends {
                list.append(self.draft(py, send, born, store, tail)?)?;
            }
            Ok(list)
        })
    }

    /// Lay all sends out as records, or return None.
    #[pyo3(signature = (
        position, room_end, max_body, largest, stamp, numbers, born, store, tail, gap=0, /
    ))]
    #[allow(clippy::too_many_arguments)]
    fn lay_out<'py>(
        &self,
        py: Python<'py>,
        position: i64,
        room_end: i64,
        max_body: i64,
        largest: i64,
        stamp: i64,
        numbers: &Bound<'py, PyDict>,
        born: &Bound<'py, PyTuple>,
        store: &Bound<'py, PyTuple>,
        tail: &str,
        gap: usize,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Rows)>> {
        or_none("Sends.lay_out", || {
            let (Some(born_host), Some(store_host)) = (host(born), host(store)) else {
                return Ok(None);
            };
            let place = Place {
                position,
                room_end,
                most_body: max_body,
                most_record: largest,
                stamp,
                born_host: &born_host,
                store_host: &store_host,
                tail: tail.as_bytes(),
                gap,
            };
            let number = |queue| {
                let key = self.names.key(py, queue).ok()?;
                match numbers.get_item(key).ok()? {
                    Some(number) => number.extract().ok(),
                    None => Some(0),
                }
            };
            let Some(layout) = lay_out(&self.cut, &place, number) else {
                return Ok(None);
            };
            let Some(records) = self.written(py, &layout, &place)? else {
                return Ok(None);
            };
            let rows = Rows::new(layout.run, self.names.clone_ref(py));
            // The last step: if a panic came behind it, numbers would be taken for nothing.
            for (queue, next) in &layout.numbers {
                numbers.set_item(self.names.key(py, *queue)?, next)?;
            }
            Ok(Some((records, rows)))
        })
    }
}

impl Sends {
    /// The bytes of the records, if they are as many as was reckoned.
    fn written<'py>(
        &self,
        py: Python<'py>,
        layout: &Layout,
        place: &Place<'_>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let data = self.data.as_bytes(py);
        let mut is_written = false;
        let records = PyBytes::new_with(py, layout.size, |bytes| {
            is_written = layout.write(&self.cut, data, place, bytes).is_some();
            Ok(())
        })?;
        Ok(is_written.then_some(records))
    }
}
