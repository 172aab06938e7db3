//! Lays sends out as records.

use crate::bytes::{Span, Writer};
use crate::cut::{Cut, Send};
use crate::properties::MAX_SIZE;
use crate::record::{HOST_SIZE, Head, OVERHEAD, Record, body_crc, tags_code, with_short_hosts};
use crate::rules::{Rule, forbids};
use crate::run::Run;
use crate::topics::{Queue, Queues};

/// What records get that sends do not say.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub position: i64,
    pub room_end: i64,
    pub most_body: i64,
    pub most_record: i64,
    pub stamp: i64,
    pub born_host: &'a [u8; HOST_SIZE],
    pub store_host: &'a [u8; HOST_SIZE],
    pub tail: &'a [u8],
    pub gap: usize,
}

/// Records that are reckoned and not written yet.
#[derive(Debug)]
pub struct Layout {
    pub run: Run,
    pub size: usize,
    pub numbers: Vec<(Queue, i64)>,
}

/// Reckons the records of all sends; `number` tells the next queue offset of a queue.
///
/// `None` where one of them is too large, the room is too small or a queue has no further number.
pub fn lay_out(
    cut: &Cut,
    place: &Place<'_>,
    mut number: impl FnMut(Queue) -> Option<i64>,
) -> Option<Layout> {
    let mut layout = Layout {
        run: Run {
            records: Vec::with_capacity(cut.sends.len()),
            texts: Vec::with_capacity(cut.texts.len() + cut.sends.len() * place.tail.len()),
            topics: cut.topics.clone(),
        },
        size: 0,
        numbers: Vec::new(),
    };
    let mut queues = Queues::default();
    let mut position = place.position;
    for (at, send) in cut.sends.iter().enumerate() {
        let queue = (send.topic, send.queue_id);
        let (queue_at, is_new) = queues.place(queue);
        if is_new {
            layout.numbers.push((queue, number(queue)?));
        }
        if at > 0 {
            position = position.checked_add(place.gap as i64)?;
            layout.size += place.gap;
        }
        let next = &mut layout.numbers.get_mut(queue_at)?.1;
        let record = layout.run.lay_out(cut, send, place, position, *next)?;
        *next = next.checked_add(1)?;
        position = record.end();
        layout.size += record.size as usize;
    }
    Some(layout)
}

impl Run {
    fn lay_out(
        &mut self,
        cut: &Cut,
        send: &Send,
        place: &Place<'_>,
        position: i64,
        number: i64,
    ) -> Option<Record> {
        let start = self.texts.len();
        self.texts.extend_from_slice(send.text.of(&cut.texts));
        let is_first = usize::from(send.text.len == 0);
        self.texts
            .extend_from_slice(place.tail.get(is_first..).unwrap_or_default());
        let text = Span::new(start, self.texts.len());
        let topic_size = self.topics.name(send.topic)?.len();
        let size = OVERHEAD + send.body.len + topic_size + text.len;
        let end = position.checked_add_unsigned(size as u64)?;
        if forbids(Rule::BodyIsAllowed, send.body.len as i64 > place.most_body)
            || forbids(Rule::RecordIsAllowed, size as i64 > place.most_record)
            || forbids(Rule::StoredPropertiesFit, text.len > MAX_SIZE)
            || forbids(Rule::RoomIsLeft, end > place.room_end)
        {
            return None;
        }
        let sought = send.sought.moved(send.text.at, start);
        let record = Record {
            position,
            size: u32::try_from(size).ok()?,
            topic: send.topic,
            queue_id: send.queue_id,
            code: tags_code(sought.tags.of(&self.texts)),
            stamp: place.stamp,
            number,
            sys_flag: with_short_hosts(send.sys_flag),
            prepared: 0,
            text,
            sought,
            names: send.names,
            key_characters: send.key_characters,
        };
        self.records.push(record);
        Some(record)
    }
}

impl Layout {
    /// Writes the records and the gaps between them into bytes of the right size.
    pub fn write(&self, cut: &Cut, data: &[u8], place: &Place<'_>, to: &mut [u8]) -> Option<()> {
        let mut to = Writer::new(to);
        for (at, (send, record)) in cut.sends.iter().zip(&self.run.records).enumerate() {
            if at > 0 {
                to.skip(place.gap)?;
            }
            let body = send.body.of(data);
            Head {
                size: record.size,
                crc: body_crc(body),
                queue_id: record.queue_id,
                flag: send.flag,
                number: record.number,
                position: record.position,
                sys_flag: record.sys_flag,
                born_timestamp: send.born_timestamp,
                born_host: place.born_host,
                stamp: record.stamp,
                store_host: place.store_host,
                reconsume_times: send.reconsume_times,
                body_size: body.len() as u32,
            }
            .write(&mut to)?;
            let topic = self.run.topics.name(record.topic)?.as_bytes();
            let text = record.text.of(&self.run.texts);
            to.put(body)?;
            to.put(&[topic.len() as u8])?;
            to.put(topic)?;
            to.put(&(text.len() as u16).to_be_bytes())?;
            to.put(text)?;
        }
        to.is_full().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::cut;
    use crate::cut::tests::send;
    use crate::walk::{Limits, walk};

    const PLACE: Place = Place {
        position: 4000,
        room_end: 9000,
        most_body: 100,
        most_record: 1000,
        stamp: 99,
        born_host: &[1; 8],
        store_host: &[2; 8],
        tail: b"\x02CLUSTER\x01c",
        gap: 0,
    };

    fn data() -> Vec<u8> {
        let mut data = send("T", 0, 1, "UNIQ_KEY\\u0001u\\u0002TAGS\\u0001t");
        data.extend(send("U", 2, 2, ""));
        data.extend(send("T", 0, 3, "KEYS\\u0001k"));
        data
    }

    #[test]
    fn what_is_laid_out_is_what_a_walk_reads() {
        let data = data();
        let sends = cut(&data, 0, 1000).unwrap();
        let layout = lay_out(&sends, &PLACE, |(topic, _)| Some(10 + i64::from(topic))).unwrap();
        assert_eq!(layout.numbers, [((0, 0), 12), ((1, 2), 12)]);
        let mut bytes = vec![0; layout.size];
        layout.write(&sends, &data, &PLACE, &mut bytes).unwrap();
        let limits = Limits {
            checks_crc: true,
            ..Limits::default()
        };
        let run = walk(&bytes, 0, 4000, &limits);
        assert_eq!(run.records, layout.run.records);
        assert_eq!(run.texts, layout.run.texts);
        assert_eq!(run.records[1].text.of(&run.texts), b"CLUSTER\x01c");
        assert_eq!(run.end(), 4000 + bytes.len() as i64);
    }

    #[test]
    fn gaps_are_between_records_alone() {
        let data = data();
        let sends = cut(&data, 0, 1000).unwrap();
        let plain = lay_out(&sends, &PLACE, |_| Some(0)).unwrap();
        let place = Place { gap: 48, ..PLACE };
        let layout = lay_out(&sends, &place, |_| Some(0)).unwrap();
        assert_eq!(layout.size, plain.size + 96);
        let mut bytes = vec![0; layout.size];
        layout.write(&sends, &data, &place, &mut bytes).unwrap();
        assert_eq!(layout.run.end(), 4000 + bytes.len() as i64);
        let first = layout.run.records[0].size as usize;
        assert_eq!(bytes[first..first + 48], [0; 48]);
    }

    #[test]
    fn what_does_not_fit_is_not_laid_out() {
        let data = data();
        let sends = cut(&data, 0, 1000).unwrap();
        let size = lay_out(&sends, &PLACE, |_| Some(0)).unwrap().size as i64;
        let tail = vec![b'x'; MAX_SIZE];
        for place in [
            Place {
                most_body: 3,
                ..PLACE
            },
            Place {
                most_record: 100,
                ..PLACE
            },
            Place {
                room_end: 4000 + size - 1,
                ..PLACE
            },
            Place {
                position: i64::MAX - 9,
                room_end: i64::MAX,
                ..PLACE
            },
            Place {
                tail: &tail,
                most_record: 100_000,
                room_end: 1_000_000,
                ..PLACE
            },
        ] {
            assert!(lay_out(&sends, &place, |_| Some(0)).is_none());
        }
        assert!(
            lay_out(
                &sends,
                &Place {
                    room_end: 4000 + size,
                    ..PLACE
                },
                |_| Some(0)
            )
            .is_some()
        );
        assert!(lay_out(&sends, &PLACE, |_| None).is_none());
        assert!(lay_out(&sends, &PLACE, |_| Some(i64::MAX)).is_none());
        let layout = lay_out(&sends, &PLACE, |_| Some(0)).unwrap();
        assert!(layout.write(&sends, &data, &PLACE, &mut [0; 10]).is_none());
    }
}
