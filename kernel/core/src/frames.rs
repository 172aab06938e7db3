//! Cuts the next frame out of bytes that a peer sent.

use crate::bytes::{Span, u32_at};
use crate::rules::{Rule, forbids};

const WORDS: usize = 8;
const LENGTH: usize = 4;
const MOST: usize = 16_777_216 - LENGTH;
const HEADER_SIZE_MASK: u32 = 0x00FF_FFFF;
const JSON: u32 = 0;

/// One whole frame with a JSON header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub header: Span,
    pub body: Span,
    pub end: usize,
}

/// The frame at `at`; `None` where it is not whole, not JSON, or anything about it is odd.
pub fn frame_at(data: &[u8], at: usize, max_header: usize) -> Option<Frame> {
    let length = u32_at(data, at)? as usize;
    let word = u32_at(data, at.checked_add(LENGTH)?)?;
    if !(LENGTH..=MOST).contains(&length) {
        return None;
    }
    let header_size = (word & HEADER_SIZE_MASK) as usize;
    let start = at + WORDS;
    let mut end = at + LENGTH + length;
    let body = start + header_size;
    if forbids(Rule::HeaderIsJson, word >> 24 != JSON)
        || forbids(Rule::HeaderIsShort, header_size > max_header)
        || forbids(Rule::HeaderFitsFrame, body > end)
        || forbids(Rule::FrameIsComplete, end > data.len())
    {
        return None;
    }
    end = end.min(data.len()); // this changes nothing, but where a test has broken a rule
    Some(Frame {
        header: Span::new(start, body),
        body: Span::new(body.min(end), end),
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
        let mut data = ((4 + header.len() + body.len()) as u32)
            .to_be_bytes()
            .to_vec();
        data.extend(((u32::from(kind) << 24) | header.len() as u32).to_be_bytes());
        data.extend(header);
        data.extend(body);
        data
    }

    #[test]
    fn a_whole_frame_is_cut() {
        let data = frame(0, b"{}", b"body");
        let cut = frame_at(&data, 0, 100).unwrap();
        assert_eq!(
            (cut.header.of(&data), cut.body.of(&data)),
            (&b"{}"[..], &b"body"[..])
        );
        assert_eq!(cut.end, data.len());
    }

    #[test]
    fn no_part_of_a_frame_is_cut() {
        let data = frame(0, b"{}", b"body");
        for size in 0..data.len() {
            assert_eq!(frame_at(&data[..size], 0, 100), None);
        }
    }

    #[test]
    fn other_headers_long_headers_and_wrong_sizes_are_not_cut() {
        assert_eq!(frame_at(&frame(1, b"{}", b""), 0, 100), None);
        assert_eq!(frame_at(&frame(0, b"{}", b""), 0, 1), None);
        let mut data = frame(0, b"{}", b"");
        data[7] = 3;
        assert_eq!(frame_at(&data, 0, 100), None);
        data[..4].copy_from_slice(&3_u32.to_be_bytes());
        assert_eq!(frame_at(&data, 0, 100), None);
        assert_eq!(frame_at(&[0xFF; 16], 0, 100), None);
        assert_eq!(frame_at(&data, usize::MAX, 100), None);
    }
}
