//! What queues, index and answers need of a record, and where it stands in its bytes.

use crate::bytes::{Span, Writer, i32_at, i64_at, u16_at, u32_at};
use crate::hash::java_hash;
use crate::properties::{MAX_SIZE, Sought, characters, names_of, sought};
use crate::rules::{Rule, forbids};
use crate::topics::{HOLD_TIMES, MAX_TOPIC_SIZE};

pub const MAGIC: u32 = 0xDAA3_20A7;
/// Size of a record without body, topic and properties, with two IPv4 hosts.
pub const OVERHEAD: usize = 91;
/// Where the body begins, with two IPv4 hosts.
const BODY_AT: usize = 88;
const CRC_MASK: u32 = 0x7FFF_FFFF;
const BOTH_HOSTS_V6: i32 = 0x30;
const LOST_SECTOR: usize = 512;
/// Only prepared and rolled-back records have this bit of sysFlag: they have no queue offset.
pub const PREPARED: i32 = 0x4;
/// A rollback has both bits of the transaction type.
pub const ROLLBACK: i32 = 0xC;
/// Bytes of an IPv4 address with its port.
pub const HOST_SIZE: usize = 8;

/// One record of a run. Its topic is a number and its spans are places in the texts of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub position: i64,
    pub size: u32,
    pub topic: u32,
    pub queue_id: i32,
    pub code: i32,
    pub stamp: i64,
    pub number: i64,
    pub sys_flag: i32,
    pub prepared: i64,
    pub text: Span,
    pub sought: Sought,
    pub names: u32,
    pub key_characters: u32,
}

impl Record {
    /// The physical offset behind the record.
    pub fn end(&self) -> i64 {
        self.position.saturating_add(i64::from(self.size))
    }
}

pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & CRC_MASK
}

/// The number that a queue's unit carries of a tag; 0 for none.
pub fn tags_code(tags: &[u8]) -> i32 {
    java_hash(&String::from_utf8_lossy(tags))
}

/// The fields before the body of a record with two IPv4 hosts.
pub struct Head<'a> {
    pub size: u32,
    pub crc: u32,
    pub queue_id: i32,
    pub flag: i32,
    pub number: i64,
    pub position: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: &'a [u8; HOST_SIZE],
    pub stamp: i64,
    pub store_host: &'a [u8; HOST_SIZE],
    pub reconsume_times: i32,
    pub body_size: u32,
}

impl Head<'_> {
    pub fn write(&self, to: &mut Writer<'_>) -> Option<()> {
        to.put(&self.size.to_be_bytes())?;
        to.put(&MAGIC.to_be_bytes())?;
        to.put(&self.crc.to_be_bytes())?;
        to.put(&self.queue_id.to_be_bytes())?;
        to.put(&self.flag.to_be_bytes())?;
        to.put(&self.number.to_be_bytes())?;
        to.put(&self.position.to_be_bytes())?;
        to.put(&self.sys_flag.to_be_bytes())?;
        to.put(&self.born_timestamp.to_be_bytes())?;
        to.put(self.born_host)?;
        to.put(&self.stamp.to_be_bytes())?;
        to.put(self.store_host)?;
        to.put(&self.reconsume_times.to_be_bytes())?;
        to.put(&0_i64.to_be_bytes())?;
        to.put(&self.body_size.to_be_bytes())
    }
}

/// The sysFlag of a record with two IPv4 hosts.
pub fn with_short_hosts(sys_flag: i32) -> i32 {
    sys_flag & !BOTH_HOSTS_V6
}

/// A record that was found, whose spans are places in its own properties.
pub struct Found<'a> {
    pub record: Record,
    pub topic: &'a str,
    pub text: &'a [u8],
}

/// The plain record at `place` whose physical offset is `position`.
///
/// `None` for everything else: what is no record, one with an IPv6 host, of the schedule topic, with
/// parts that do not add up, or with bytes that are no UTF-8.
pub fn plain_record_at(
    data: &[u8],
    place: usize,
    position: i64,
    check_crc: bool,
) -> Option<Found<'_>> {
    let size = i32_at(data, place)?;
    if size < OVERHEAD as i32 {
        return None;
    }
    let end = place.checked_add(usize::try_from(size).ok()?)?;
    let sys_flag = i32_at(data, place + 36)?;
    let body_size = usize::try_from(i32_at(data, place + 84)?).ok()?;
    let body_at = place + BODY_AT;
    let topic_size_at = body_at.checked_add(body_size)?;
    let said = i64_at(data, place + 28)?;
    if forbids(Rule::MagicIsThat, u32_at(data, place + 4)? != MAGIC)
        || forbids(Rule::HostsAreShort, sys_flag & BOTH_HOSTS_V6 != 0)
        || forbids(Rule::PlaceIsThat, said != position)
        || end > data.len()
    {
        return None;
    }
    let topic_size = usize::from(*data.get(topic_size_at)?);
    let text_at = topic_size_at.checked_add(3 + topic_size)?;
    let text_size = usize::from(u16_at(data, text_at - 2)?);
    if !(1..=MAX_TOPIC_SIZE).contains(&topic_size)
        || text_at > end
        || forbids(Rule::PartsAddUp, text_size != end - text_at)
        || text_size > MAX_SIZE
    {
        return None;
    }
    let stored = data.get(text_at..text_at.checked_add(text_size)?)?;
    if check_crc {
        let body = data.get(body_at..topic_size_at)?;
        let is_wrong = !body.is_empty() && body_crc(body) != u32_at(data, place + 8)?;
        if forbids(Rule::CrcIsThat, is_wrong)
            || forbids(Rule::LostSectorIsOdd, has_lost_sector(stored))
        {
            return None;
        }
    }
    let topic = std::str::from_utf8(data.get(topic_size_at + 1..text_at - 2)?).ok()?;
    if forbids(Rule::TopicIsDirectory, !is_directory(topic))
        || forbids(Rule::ScheduleIsOdd, HOLD_TIMES.contains(&topic))
        || std::str::from_utf8(stored).is_err()
    {
        return None;
    }
    let found = sought(stored);
    let keys = found.keys.of(stored);
    let record = Record {
        position: said,
        size: size as u32,
        topic: 0,
        queue_id: i32_at(data, place + 12)?,
        code: tags_code(found.tags.of(stored)),
        stamp: i64_at(data, place + 56)?,
        number: i64_at(data, place + 20)?,
        sys_flag,
        prepared: i64_at(data, place + 76)?,
        text: Span::new(0, stored.len()),
        names: names_of(&found, keys),
        key_characters: characters(keys) as u32,
        sought: found,
    };
    Some(Found {
        record,
        topic,
        text: stored,
    })
}

/// Whether a topic can be the name of a directory.
fn is_directory(topic: &str) -> bool {
    !topic.is_empty()
        && topic != "."
        && topic != ".."
        && !topic.bytes().any(|byte| byte == b'/' || byte == 0)
}

/// Whether there are as many zeros side by side as a crash leaves.
fn has_lost_sector(text: &[u8]) -> bool {
    text.len() >= LOST_SECTOR
        && text
            .split(|&byte| byte != 0)
            .any(|zeros| zeros.len() >= LOST_SECTOR)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A record with the queue offset 7, stored at 99, of the body "body".
    pub fn encoded(position: i64, topic: &str, text: &str) -> Vec<u8> {
        let size = OVERHEAD + 4 + topic.len() + text.len();
        let mut data = vec![0; size];
        let mut to = Writer::new(&mut data);
        Head {
            size: size as u32,
            crc: body_crc(b"body"),
            queue_id: 3,
            flag: 0,
            number: 7,
            position,
            sys_flag: 0,
            born_timestamp: 5,
            born_host: &[1; HOST_SIZE],
            stamp: 99,
            store_host: &[2; HOST_SIZE],
            reconsume_times: 0,
            body_size: 4,
        }
        .write(&mut to)
        .unwrap();
        for piece in [b"body", &[topic.len() as u8][..], topic.as_bytes()] {
            to.put(piece).unwrap();
        }
        to.put(&(text.len() as u16).to_be_bytes()).unwrap();
        to.put(text.as_bytes()).unwrap();
        assert!(to.is_full());
        data
    }

    #[test]
    fn a_plain_record_is_read() {
        let mut data = b"before".to_vec();
        data.extend(encoded(
            1000,
            "T",
            "TAGS\x01TagA\x02KEYS\x01k\x02UNIQ_KEY\x01u",
        ));
        let found = plain_record_at(&data, 6, 1000, true).unwrap();
        let record = found.record;
        assert_eq!(found.topic, "T");
        assert_eq!((record.queue_id, record.number, record.stamp), (3, 7, 99));
        assert_eq!(record.code, 2_598_919);
        assert_eq!(record.sought.keys.of(found.text), b"k");
        assert_eq!(record.sought.uniq_key.of(found.text), b"u");
        assert_eq!((record.names, record.key_characters), (2, 1));
        assert_eq!(record.end(), 1000 + data.len() as i64 - 6);
    }

    #[test]
    fn only_whole_plain_records_are_read() {
        let data = encoded(1000, "T", "A\x01b");
        assert!(plain_record_at(&data, 0, 1000, true).is_some());
        for size in 0..data.len() {
            assert!(plain_record_at(&data[..size], 0, 1000, true).is_none());
        }
        assert!(plain_record_at(&data, 0, 1001, false).is_none());
        assert!(plain_record_at(&data, usize::MAX, 1000, false).is_none());
        for (at, is_found_without_crc) in [
            (3, false),
            (7, false),
            (38, true),
            (39, true),
            (87, false),
            (88, true),
        ] {
            let mut broken = data.clone();
            broken[at] ^= 0x10;
            let found = plain_record_at(&broken, 0, 1000, false).is_some();
            assert_eq!(found, is_found_without_crc && at != 39, "{at}");
        }
        let mut broken = data.clone();
        broken[88] ^= 1;
        assert!(plain_record_at(&broken, 0, 1000, true).is_none());
    }

    #[test]
    fn odd_topics_and_lost_sectors_are_not_read() {
        for topic in ["", ".", "..", "a/b", "a\0", HOLD_TIMES[0], HOLD_TIMES[1]] {
            assert!(
                plain_record_at(&encoded(0, topic, ""), 0, 0, false).is_none(),
                "{topic:?}"
            );
        }
        let zeros = format!("A\x01{}", "\0".repeat(LOST_SECTOR));
        assert!(plain_record_at(&encoded(0, "T", &zeros), 0, 0, false).is_some());
        assert!(plain_record_at(&encoded(0, "T", &zeros), 0, 0, true).is_none());
    }
}
