//! Big-endian numbers in bytes, each access checked against the bounds.

/// The `N` bytes at `at`; `None` where the data ends before.
pub fn array_at<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub fn i32_at(data: &[u8], at: usize) -> Option<i32> {
    array_at(data, at).map(i32::from_be_bytes)
}

pub fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    array_at(data, at).map(u32::from_be_bytes)
}

pub fn i64_at(data: &[u8], at: usize) -> Option<i64> {
    array_at(data, at).map(i64::from_be_bytes)
}

pub fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    array_at(data, at).map(u16::from_be_bytes)
}

/// Part of some bytes, as place and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub at: usize,
    pub len: usize,
}

impl Span {
    pub fn new(at: usize, end: usize) -> Self {
        Self {
            at,
            len: end.saturating_sub(at),
        }
    }

    pub fn end(self) -> usize {
        self.at.saturating_add(self.len)
    }

    /// The bytes of the part; empty where the data ends before.
    pub fn of(self, data: &[u8]) -> &[u8] {
        self.at
            .checked_add(self.len)
            .and_then(|end| data.get(self.at..end))
            .unwrap_or_default()
    }
}

/// Writes pieces one after the other into bytes of a known size.
pub struct Writer<'a> {
    data: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(data: &'a mut [u8]) -> Self {
        Self { data, at: 0 }
    }

    /// Writes a piece; `None` where it does not fit.
    pub fn put(&mut self, piece: &[u8]) -> Option<()> {
        let end = self.at.checked_add(piece.len())?;
        self.data.get_mut(self.at..end)?.copy_from_slice(piece);
        self.at = end;
        Some(())
    }

    /// Leaves bytes as they are.
    pub fn skip(&mut self, count: usize) -> Option<()> {
        let end = self.at.checked_add(count)?;
        if end > self.data.len() {
            return None;
        }
        self.at = end;
        Some(())
    }

    pub fn is_full(&self) -> bool {
        self.at == self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_only_where_all_its_bytes_are() {
        let data = [0, 0, 0, 7, 0xFF];
        assert_eq!(i32_at(&data, 0), Some(7));
        assert_eq!(u32_at(&data, 1), Some(0x7FF));
        assert_eq!(i32_at(&data, 2), None);
        assert_eq!(i64_at(&data, usize::MAX), None);
        assert_eq!(u16_at(&data, 3), Some(0x7FF));
    }

    #[test]
    fn a_span_beyond_the_data_is_empty() {
        assert_eq!(Span::new(1, 3).of(b"abcd"), b"bc");
        assert_eq!(Span::new(3, 9).of(b"abcd"), b"");
        assert_eq!(
            Span {
                at: usize::MAX,
                len: 2
            }
            .of(b"abcd"),
            b""
        );
    }

    #[test]
    fn a_writer_stops_at_the_end() {
        let mut data = [0; 3];
        let mut writer = Writer::new(&mut data);
        assert_eq!(writer.put(b"ab"), Some(()));
        assert_eq!(writer.put(b"cd"), None);
        assert_eq!(writer.skip(1), Some(()));
        assert!(writer.is_full());
        assert_eq!(writer.skip(1), None);
    }
}
