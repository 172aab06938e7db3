//! The units of consume queues.

use crate::record::{PREPARED, Record};
use crate::rules::{Rule, forbids};
use crate::run::Run;
use crate::topics::{Queue, Queues};

/// Units of one queue without a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRun {
    pub queue: Queue,
    pub first: i64,
    pub units: Vec<u8>,
    pub begins: i64,
    pub reaches: i64,
    next: i64,
}

const UNIT_SIZE: usize = 20;

/// The units of the records that consumers may see, by queue.
///
/// `None` where the queue offsets of a queue do not rise by one from record to record.
pub fn units(run: &Run) -> Option<Vec<UnitRun>> {
    let mut places = Queues::default();
    let mut found: Vec<UnitRun> = Vec::new();
    for record in &run.records {
        let is_prepared = record.sys_flag & PREPARED != 0;
        if forbids(Rule::PreparedIsNotForConsumers, is_prepared) {
            continue;
        }
        let queue = (record.topic, record.queue_id);
        let (place, is_new) = places.place(queue);
        if is_new {
            found.push(UnitRun {
                queue,
                first: record.number,
                units: Vec::with_capacity(UNIT_SIZE * 8),
                begins: record.position,
                reaches: 0,
                next: record.number,
            });
        }
        add(found.get_mut(place)?, record)?;
    }
    Some(found)
}

fn add(to: &mut UnitRun, record: &Record) -> Option<()> {
    if forbids(Rule::NumbersFollow, record.number != to.next) {
        return None;
    }
    let mut unit = [0; UNIT_SIZE];
    let (position, rest) = unit.split_at_mut_checked(8)?;
    let (size, code) = rest.split_at_mut_checked(4)?;
    position.copy_from_slice(&record.position.to_be_bytes());
    size.copy_from_slice(&record.size.to_be_bytes());
    code.copy_from_slice(&i64::from(record.code).to_be_bytes());
    to.units.extend_from_slice(&unit);
    to.next = record.number.checked_add(1)?;
    to.reaches = record.end();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run;

    #[test]
    fn each_queue_gets_its_units() {
        let mut run = run(&[("T", "TAGS\x01TagA"), ("U", ""), ("T", "")]);
        run.records[2].number = 8;
        let found = units(&run).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].queue, found[0].first), ((0, 3), 7));
        assert_eq!((found[0].begins, found[0].reaches), (500, run.end()));
        assert_eq!(found[0].units.len(), 40);
        assert_eq!(found[0].units[..8], 500_i64.to_be_bytes());
        assert_eq!(found[0].units[8..12], run.records[0].size.to_be_bytes());
        assert_eq!(found[0].units[12..20], 2_598_919_i64.to_be_bytes());
        assert_eq!(found[1].units.len(), 20);
    }

    #[test]
    fn numbers_with_a_hole_make_no_units() {
        let mut run = run(&[("T", ""), ("T", "")]);
        assert_eq!(units(&run), None);
        run.records[0].number = i64::MAX;
        assert_eq!(units(&run), None);
    }

    #[test]
    fn prepared_records_have_no_unit() {
        let mut run = run(&[("T", ""), ("T", "")]);
        run.records[0].sys_flag = PREPARED;
        assert_eq!(units(&run).unwrap()[0].units.len(), 20);
        run.records[1].sys_flag = 0xC;
        assert_eq!(units(&run).unwrap(), []);
    }
}
