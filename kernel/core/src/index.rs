//! Inserts the keys of records into an IndexFile.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::hash::{index_hash, java_hash_from};
use crate::properties::keys_in;
use crate::record::{ROLLBACK, Record};
use crate::rules::{Rule, forbids, may_panic};
use crate::run::Run;

const HEADER_SIZE: usize = 40;
const SLOT_SIZE: usize = 4;
const ITEM_SIZE: usize = 20;

/// The numbers of an IndexFile's header, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub begin_timestamp: i64,
    pub end_timestamp: i64,
    pub begin_offset: i64,
    pub end_offset: i64,
    pub slots_used: i32,
    pub count: i32,
}

/// A header as a tuple.
pub type Numbers = (i64, i64, i64, i64, i32, i32);

impl From<Numbers> for Header {
    fn from(numbers: Numbers) -> Self {
        Self {
            begin_timestamp: numbers.0,
            end_timestamp: numbers.1,
            begin_offset: numbers.2,
            end_offset: numbers.3,
            slots_used: numbers.4,
            count: numbers.5,
        }
    }
}

impl From<Header> for Numbers {
    fn from(header: Header) -> Self {
        (
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_offset,
            header.end_offset,
            header.slots_used,
            header.count,
        )
    }
}

/// An IndexFile: its bytes, and how many slots it has.
#[derive(Clone, Copy)]
pub struct File<'a> {
    pub bytes: &'a [Cell<u8>],
    pub slots: u32,
}

impl File<'_> {
    fn item_at(self, number: i32) -> Option<usize> {
        let items = usize::try_from(number).ok()?.checked_mul(ITEM_SIZE)?;
        let slots = (self.slots as usize).checked_mul(SLOT_SIZE)?;
        items.checked_add(slots)?.checked_add(HEADER_SIZE)
    }

    fn slot_at(self, hash: i32) -> Option<usize> {
        let slot = (hash as u32).checked_rem(self.slots)? as usize;
        Some(HEADER_SIZE + slot * SLOT_SIZE)
    }

    fn read(self, at: usize) -> Option<i32> {
        let cells = self.bytes.get(at..at.checked_add(SLOT_SIZE)?)?;
        let mut bytes = [0; SLOT_SIZE];
        for (byte, cell) in bytes.iter_mut().zip(cells) {
            *byte = cell.get();
        }
        Some(i32::from_be_bytes(bytes))
    }

    fn write(self, at: usize, bytes: &[u8]) -> Option<()> {
        let cells = self.bytes.get(at..at.checked_add(bytes.len())?)?;
        for (cell, byte) in cells.iter().zip(bytes) {
            cell.set(*byte);
        }
        Some(())
    }
}

/// Inserts an item for each key of the records from the physical offset `reached` on.
///
/// Gives the new header, which the caller writes. `None`, and nothing is written, where there are
/// more keys than `room`, or the file ends before them.
pub fn put(run: &Run, file: File<'_>, room: u64, header: Header, reached: i64) -> Option<Header> {
    let is_chosen = |record: &&Record| {
        let is_rollback = record.sys_flag & ROLLBACK == ROLLBACK;
        !forbids(Rule::IndexedIsLeftOut, record.position < reached)
            && !forbids(Rule::RollbackIsNotIndexed, is_rollback)
    };
    let chosen = || run.records.iter().filter(is_chosen);
    let count: u64 = chosen().map(|record| u64::from(record.names)).sum();
    if count == 0 {
        return Some(header);
    }
    let end = header.count.checked_add(i32::try_from(count).ok()?)?;
    let is_enough = count <= room && header.count >= 1 && file.item_at(end)? <= file.bytes.len();
    if file.slots == 0 || forbids(Rule::IndexHasRoom, !is_enough) {
        return None;
    }
    let mut header = header;
    for record in chosen() {
        let topic = run.topics.get(record.topic)?;
        let uniq_key = record.sought.uniq_key.of(&run.texts);
        let keys = keys_in(record.sought.keys.of(&run.texts));
        for key in std::iter::once(uniq_key)
            .filter(|key| !key.is_empty())
            .chain(keys)
        {
            let hash = java_hash_from(topic.seed, std::str::from_utf8(key).ok()?);
            insert(file, index_hash(hash), record, &mut header)?;
        }
    }
    Some(header)
}

fn insert(file: File<'_>, hash: i32, record: &Record, header: &mut Header) -> Option<()> {
    let number = header.count;
    if number == 1 {
        header.begin_timestamp = record.stamp;
        header.begin_offset = record.position;
    }
    let at = file.slot_at(hash)?;
    let mut previous = file.read(at)?;
    if forbids(Rule::ChainsGoBack, !(0 < previous && previous < number)) {
        header.slots_used = header.slots_used.wrapping_add(i32::from(previous == 0));
        previous = 0;
    }
    let mut item = [0; ITEM_SIZE];
    let (hash_part, rest) = item.split_at_mut_checked(4)?;
    let (offset_part, rest) = rest.split_at_mut_checked(8)?;
    let (seconds_part, previous_part) = rest.split_at_mut_checked(4)?;
    hash_part.copy_from_slice(&hash.to_be_bytes());
    offset_part.copy_from_slice(&record.position.to_be_bytes());
    seconds_part
        .copy_from_slice(&seconds_since(header.begin_timestamp, record.stamp).to_be_bytes());
    previous_part.copy_from_slice(&previous.to_be_bytes());
    file.write(file.item_at(number)?, &item)?;
    if number % 3 == 2 {
        may_panic("between item and slot");
    }
    // If the process dies between these writes, the next start repairs the slot by the item. So the
    // compiler must not change their order.
    compiler_fence(Ordering::SeqCst);
    file.write(at, &number.to_be_bytes())?;
    compiler_fence(Ordering::SeqCst);
    header.end_timestamp = record.stamp;
    header.end_offset = record.position;
    header.count = number.checked_add(1)?;
    Some(())
}

fn seconds_since(begin: i64, stamp: i64) -> i32 {
    if begin <= 0 {
        return 0;
    }
    let seconds = (i128::from(stamp) - i128::from(begin)).div_euclid(1000);
    if forbids(Rule::TimeIsNotNegative, seconds < 0) {
        return 0;
    }
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run;

    const EMPTY: Header = Header {
        begin_timestamp: 0,
        end_timestamp: 0,
        begin_offset: 0,
        end_offset: 0,
        slots_used: 0,
        count: 1,
    };

    fn cells(slots: u32, items: usize) -> Vec<Cell<u8>> {
        vec![Cell::new(0); HEADER_SIZE + slots as usize * SLOT_SIZE + items * ITEM_SIZE]
    }

    #[test]
    fn each_key_gets_an_item() {
        let bytes = cells(1, 4);
        let file = File {
            bytes: &bytes,
            slots: 1,
        };
        let run = run(&[("T", "UNIQ_KEY\x01u\x02KEYS\x01 a  b")]);
        let header = put(&run, file, 3, EMPTY, 0).unwrap();
        assert_eq!((header.count, header.slots_used), (4, 1));
        assert_eq!((header.begin_timestamp, header.end_timestamp), (99, 99));
        assert_eq!((header.begin_offset, header.end_offset), (500, 500));
        assert_eq!(file.read(HEADER_SIZE), Some(3));
        let item = file.item_at(3).unwrap();
        assert_eq!(file.read(item), Some(crate::hash::java_hash("T#b")));
        assert_eq!(file.read(item + 16), Some(2));
    }

    #[test]
    fn without_room_nothing_is_written() {
        let run = run(&[("T", "UNIQ_KEY\x01u"), ("T", "UNIQ_KEY\x01v")]);
        for (slots, items, room) in [(1, 3, 1), (1, 2, 9), (0, 9, 9)] {
            let bytes = cells(slots, items);
            let file = File {
                bytes: &bytes,
                slots,
            };
            assert_eq!(put(&run, file, room, EMPTY, 0), None);
            assert!(bytes.iter().all(|cell| cell.get() == 0));
        }
        let bytes = cells(1, 9);
        let file = File {
            bytes: &bytes,
            slots: 1,
        };
        assert_eq!(put(&run, file, 9, Header { count: 0, ..EMPTY }, 0), None);
        assert_eq!(
            put(
                &run,
                file,
                9,
                Header {
                    count: i32::MAX,
                    ..EMPTY
                },
                0
            ),
            None
        );
    }

    #[test]
    fn what_is_indexed_or_rolled_back_is_left_out() {
        let mut run = run(&[("T", "UNIQ_KEY\x01u"), ("T", "UNIQ_KEY\x01v"), ("T", "")]);
        let bytes = cells(4, 9);
        let file = File {
            bytes: &bytes,
            slots: 4,
        };
        assert_eq!(put(&run, file, 9, EMPTY, 501).unwrap().count, 2);
        run.records[0].sys_flag = ROLLBACK;
        run.records[1].sys_flag = 8;
        assert_eq!(put(&run, file, 9, EMPTY, 0).unwrap().count, 2);
        assert_eq!(put(&run, file, 0, EMPTY, 10_000), Some(EMPTY));
    }

    #[test]
    fn times_are_seconds_since_the_first() {
        assert_eq!(seconds_since(0, 5000), 0);
        assert_eq!(seconds_since(1000, 3999), 2);
        assert_eq!(seconds_since(3000, 1999), 0);
        assert_eq!(seconds_since(1, i64::MAX), i32::MAX);
        assert_eq!(seconds_since(i64::MAX, i64::MIN), 0);
    }

    #[test]
    fn a_slot_that_leads_nowhere_begins_a_chain() {
        let run = run(&[("T", "UNIQ_KEY\x01u")]);
        for (slot, used) in [(0, 1), (5, 0), (-1, 0), (1, 0)] {
            let bytes = cells(1, 9);
            let file = File {
                bytes: &bytes,
                slots: 1,
            };
            file.write(HEADER_SIZE, &i32::to_be_bytes(slot)).unwrap();
            let header = put(&run, file, 9, EMPTY, 0).unwrap();
            assert_eq!(header.slots_used, used);
            assert_eq!(file.read(file.item_at(1).unwrap() + 16), Some(0));
        }
    }
}
