//! Reads plain records that follow each other.

use crate::bytes::{i32_at, i64_at};
use crate::record::plain_record_at;
use crate::rules::{Rule, forbids};
use crate::run::Run;

/// Bytes of the header that DLedger writes before each record.
const ENTRY_HEADER: usize = 48;

/// When a walk ends, and how closely it looks.
///
/// The walk ends behind the record with which the characters of all keys reach `most_work`. With a
/// `gap` there is the header of an entry of DLedger before each record.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub most_records: usize,
    pub most_work: u64,
    pub checks_crc: bool,
    pub gap: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_records: usize::MAX,
            most_work: u64::MAX,
            checks_crc: false,
            gap: 0,
        }
    }
}

/// The records from `at` on, up to the first that is not plain.
///
/// `position` is the physical offset of the first one.
pub fn walk(data: &[u8], at: usize, position: i64, limits: &Limits) -> Run {
    let mut run = Run::default();
    let (mut at, mut position, mut work) = (at, position, 0);
    while run.records.len() < limits.most_records {
        let Some(found) = plain_record_at(data, at, position, limits.checks_crc) else {
            break;
        };
        let size = found.record.size;
        if limits.gap > 0 && !is_entry(data, at, size, position, limits.gap) {
            break;
        }
        run.add(&found);
        work += u64::from(found.record.key_characters);
        let step = size as usize + limits.gap;
        let next = position.checked_add_unsigned(step as u64);
        let (Some(following), Some(next)) = (at.checked_add(step), next) else {
            break;
        };
        (at, position) = (following, next);
        if work >= limits.most_work {
            break;
        }
    }
    run
}

/// Whether the header of an entry of DLedger, which has this record, is before it.
fn is_entry(data: &[u8], at: usize, size: u32, position: i64, gap: usize) -> bool {
    let Some(start) = at.checked_sub(gap) else {
        return false;
    };
    let whole = i64::from(size) + ENTRY_HEADER as i64;
    let is_that = gap == ENTRY_HEADER
        && i32_at(data, start) == Some(1)
        && i32_at(data, start + 4).map(i64::from) == Some(whole)
        && i64_at(data, start + 24) == position.checked_sub(ENTRY_HEADER as i64);
    !forbids(Rule::EntryIsThat, !is_that)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::encoded;

    fn log() -> Vec<u8> {
        let mut data = Vec::new();
        for topic in ["T", "U", "T"] {
            let record = encoded(500 + data.len() as i64, topic, "KEYS\x01abc");
            data.extend(record);
        }
        data
    }

    fn count(data: &[u8], position: i64, limits: Limits) -> usize {
        walk(data, 0, position, &limits).records.len()
    }

    #[test]
    fn a_walk_reads_what_follows_each_other() {
        let data = log();
        let run = walk(&data, 0, 500, &Limits::default());
        assert_eq!((run.start(), run.end()), (500, 500 + data.len() as i64));
        let topics: Vec<_> = run.records.iter().map(|record| record.topic).collect();
        assert_eq!(topics, [0, 1, 0]);
    }

    #[test]
    fn a_walk_ends_by_count_work_and_bytes() {
        let data = log();
        let all = Limits::default();
        let few = |most_records| Limits {
            most_records,
            ..all
        };
        let light = |most_work| Limits { most_work, ..all };
        assert_eq!(count(&data, 500, few(2)), 2);
        assert_eq!(count(&data, 500, light(4)), 2);
        assert_eq!(count(&data, 500, light(0)), 1);
        assert_eq!(count(&data[..data.len() - 1], 500, all), 2);
        assert_eq!(count(&data, 501, all), 0);
        assert!(walk(&data, data.len(), 500, &all).records.is_empty());
        assert!(walk(&data, usize::MAX, 500, &all).records.is_empty());
    }

    #[test]
    fn a_walk_reads_entries_of_dledger() {
        let mut data = Vec::new();
        for _ in 0..2 {
            let start = data.len() as i64;
            let record = encoded(start + 48, "T", "");
            data.extend(1_i32.to_be_bytes());
            data.extend((record.len() as i32 + 48).to_be_bytes());
            data.extend([0; 16]);
            data.extend(start.to_be_bytes());
            data.extend([0; 16]);
            data.extend(record);
        }
        let limits = Limits {
            gap: 48,
            ..Limits::default()
        };
        assert_eq!(walk(&data, 48, 48, &limits).records.len(), 2);
        let second = data.len() / 2;
        for at in [3, 7, 31] {
            let mut broken = data.clone();
            broken[second + at] ^= 1;
            assert_eq!(walk(&broken, 48, 48, &limits).records.len(), 1, "{at}");
            broken[at] ^= 1;
            assert_eq!(walk(&broken, 48, 48, &limits).records.len(), 0, "{at}");
        }
        assert!(
            walk(&data, 48, 48, &Limits { gap: 49, ..limits })
                .records
                .is_empty()
        );
    }
}
