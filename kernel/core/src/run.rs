//! A run of records: what queues, index, answers and statistics are made of.

use crate::bytes::Span;
use crate::record::{Found, Record};
use crate::topics::{Queue, Queues, Topics};

/// Records that follow each other in the log, with the properties of all of them.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub records: Vec<Record>,
    pub texts: Vec<u8>,
    pub topics: Topics,
}

impl Run {
    /// Adds a record that was found in the log.
    pub fn add(&mut self, found: &Found<'_>) {
        let topic = self.topics.number(found.topic);
        self.push(&found.record, topic, found.text);
    }

    /// Adds a record with its properties.
    pub fn push(&mut self, record: &Record, topic: u32, text: &[u8]) {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        self.records.push(Record {
            topic,
            text: Span::new(start, self.texts.len()),
            sought: record.sought.moved(record.text.at, start),
            ..*record
        });
    }

    /// All records of another run behind those of this one.
    pub fn append(&mut self, other: &Run) {
        self.extend(other, &other.records);
    }

    fn extend(&mut self, other: &Run, records: &[Record]) {
        for record in records {
            let name = other.topics.name(record.topic).unwrap_or_default();
            let topic = self.topics.number(name);
            self.push(record, topic, record.text.of(&other.texts));
        }
    }

    /// The records from one number up to another one, as a run of their own.
    pub fn part(&self, first: usize, end: usize) -> Option<Run> {
        let records = self.records.get(first..end)?;
        let mut part = Run::default();
        part.extend(self, records);
        (!records.is_empty()).then_some(part)
    }

    /// Physical offset of the first record.
    pub fn start(&self) -> i64 {
        self.records.first().map_or(0, |record| record.position)
    }

    /// Physical offset behind the last record.
    pub fn end(&self) -> i64 {
        self.records.last().map_or(0, Record::end)
    }

    /// Bytes of the records, without gaps between them.
    pub fn size(&self) -> u64 {
        self.records
            .iter()
            .map(|record| u64::from(record.size))
            .sum()
    }

    /// Characters of all keys.
    pub fn work(&self) -> u64 {
        let characters = |record: &Record| u64::from(record.key_characters);
        self.records.iter().map(characters).sum()
    }

    /// The queues of the records, each once, with how many records it has and their bytes.
    pub fn counts(&self) -> Vec<(Queue, u64, u64)> {
        let mut places = Queues::default();
        let mut counts: Vec<(Queue, u64, u64)> = Vec::new();
        for record in &self.records {
            let queue = (record.topic, record.queue_id);
            let (place, is_new) = places.place(queue);
            if is_new {
                counts.push((queue, 0, 0));
            }
            if let Some(count) = counts.get_mut(place) {
                count.1 += 1;
                count.2 += u64::from(record.size);
            }
        }
        counts
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::record::tests::encoded;
    use crate::walk::{Limits, walk};

    /// A run of a record for each topic and properties, the first of them at 500.
    pub fn run(records: &[(&str, &str)]) -> Run {
        let mut data = Vec::new();
        for (topic, text) in records {
            let record = encoded(500 + data.len() as i64, topic, text);
            data.extend(record);
        }
        walk(&data, 0, 500, &Limits::default())
    }

    #[test]
    fn a_run_adds_up() {
        let run = run(&[("T", "KEYS\x01ab"), ("U", ""), ("T", "KEYS\x01é")]);
        assert_eq!((run.start(), run.work()), (500, 3));
        assert_eq!(run.end() - run.start(), run.size() as i64);
        let sizes: Vec<u64> = run
            .records
            .iter()
            .map(|record| record.size.into())
            .collect();
        assert_eq!(
            run.counts(),
            [((0, 3), 2, sizes[0] + sizes[2]), ((1, 3), 1, sizes[1])]
        );
    }

    #[test]
    fn parts_and_sums_keep_their_texts() {
        let whole = run(&[
            ("T", "UNIQ_KEY\x01a"),
            ("U", "UNIQ_KEY\x01bb"),
            ("T", "KEYS\x01k"),
        ]);
        let mut part = whole.part(1, 3).unwrap();
        assert_eq!(part.topics.name(part.records[0].topic), Some("U"));
        assert_eq!(part.records[0].sought.uniq_key.of(&part.texts), b"bb");
        assert_eq!(part.records[1].sought.keys.of(&part.texts), b"k");
        part.append(&whole);
        assert_eq!(part.records.len(), 5);
        assert_eq!(part.records[2].sought.uniq_key.of(&part.texts), b"a");
        assert_eq!(part.topics.name(part.records[3].topic), Some("U"));
        assert!(whole.part(2, 2).is_none() && whole.part(0, 4).is_none());
    }
}
