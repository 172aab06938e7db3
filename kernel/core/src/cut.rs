//! Cuts the ordinary sends from the start of what a peer sent.

use crate::bytes::Span;
use crate::frames::{Frame, frame_at};
use crate::json::{Raw, unescape};
use crate::properties::{Sought, characters, names_of, ordinary};
use crate::rules::{Rule, forbids};
use crate::send::{form_of, read};
use crate::topics::{HOLD_TIMES, MAX_TOPIC_SIZE, Topics};

const ONE_WAY: i32 = 2;
const TRANSACTION: i32 = 0xC;

/// One send. `text` and what is sought in it are places in `Cut::texts`, header and body in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    pub opaque: Option<i32>,
    pub header: Span,
    pub topic: u32,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub flag: i32,
    pub reconsume_times: i32,
    pub body: Span,
    pub text: Span,
    pub sought: Sought,
    pub names: u32,
    pub key_characters: u32,
}

/// Sends that follow each other.
#[derive(Debug, Default)]
pub struct Cut {
    pub sends: Vec<Send>,
    pub texts: Vec<u8>,
    pub topics: Topics,
}

/// The ordinary sends of `data` from `at` on; `None` where there is not one.
pub fn cut(data: &[u8], at: usize, max_header: usize) -> Option<Cut> {
    let mut run = Cut::default();
    let mut at = at;
    while let Some(frame) = frame_at(data, at, max_header) {
        let start = run.texts.len();
        let Some(send) = run.send(data, &frame) else {
            run.texts.truncate(start);
            break;
        };
        run.sends.push(send);
        at = frame.end;
    }
    (!run.sends.is_empty()).then_some(run)
}

impl Cut {
    fn send(&mut self, data: &[u8], frame: &Frame) -> Option<Send> {
        let bytes = frame.header.of(data);
        let form = form_of(bytes)?;
        if std::str::from_utf8(bytes).is_err() {
            return None;
        }
        let header = read(bytes, form)?;
        if forbids(
            Rule::FlagIsPlain,
            header.flag != 0 && header.flag != ONE_WAY,
        ) || forbids(Rule::SysFlagIsPlain, header.sys_flag & TRANSACTION != 0)
        {
            return None;
        }
        let start = self.texts.len();
        if let Some(raw) = header.properties {
            unescape(raw, &mut self.texts)?;
        }
        let sought = ordinary(&mut self.texts, start)?;
        let topic = self.topic(header.topic?)?; // the last that can fail: an odd send has no topic here
        let keys = sought.keys.of(&self.texts);
        Some(Send {
            opaque: (header.flag & ONE_WAY == 0).then_some(header.opaque),
            header: frame.header,
            topic,
            queue_id: header.queue_id,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            flag: header.message_flag,
            reconsume_times: header.reconsume_times,
            body: frame.body,
            text: Span::new(start, self.texts.len()),
            names: names_of(&sought, keys),
            key_characters: characters(keys) as u32,
            sought,
        })
    }

    /// The number of a topic that a record can name.
    fn topic(&mut self, raw: Raw<'_>) -> Option<u32> {
        let mut unescaped = Vec::new();
        let name = if raw.has_escapes {
            unescape(raw, &mut unescaped)?;
            &unescaped
        } else {
            raw.bytes
        };
        let name = std::str::from_utf8(name).ok()?;
        if forbids(Rule::TopicIsShort, name.len() > MAX_TOPIC_SIZE)
            || forbids(
                Rule::TopicIsPlain,
                name.is_empty() || !name.bytes().all(is_of_topics),
            )
            || HOLD_TIMES.contains(&name)
        {
            return None;
        }
        Some(self.topics.number(name))
    }

    /// How many of the first sends name a queue that exists, by the numbers of queues of the topics.
    pub fn fit(&self, queues: &[i64]) -> usize {
        let is_odd = |send: &Send| {
            let count = queues.get(send.topic as usize).copied().unwrap_or(0);
            let exists = (0..count).contains(&i64::from(send.queue_id));
            forbids(Rule::QueueExists, !exists)
        };
        let first_odd = self.sends.iter().position(is_odd);
        first_odd.unwrap_or(self.sends.len())
    }

    /// The sends from one number up to another one, as a run of their own.
    pub fn part(&self, first: usize, end: usize) -> Option<Cut> {
        let mut part = Cut::default();
        for send in self.sends.get(first..end)? {
            let start = part.texts.len();
            let name = self.topics.name(send.topic)?;
            part.texts.extend_from_slice(send.text.of(&self.texts));
            let mut send = *send;
            send.topic = part.topics.number(name);
            send.sought = send.sought.moved(send.text.at, start);
            send.text.at = start;
            part.sends.push(send);
        }
        (!part.sends.is_empty()).then_some(part)
    }
}

fn is_of_topics(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-')
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn frame(header: &str, body: &[u8]) -> Vec<u8> {
        let mut data = ((4 + header.len() + body.len()) as u32)
            .to_be_bytes()
            .to_vec();
        data.extend((header.len() as u32).to_be_bytes());
        data.extend(header.as_bytes());
        data.extend(body);
        data
    }

    pub fn send(topic: &str, queue_id: i32, opaque: i32, properties: &str) -> Vec<u8> {
        let header = format!(
            "{{\"code\":310,\"extFields\":{{\"b\":\"{topic}\",\"e\":\"{queue_id}\",\
             \"g\":\"5\",\"i\":\"{properties}\"}},\"opaque\":{opaque}}}"
        );
        frame(&header, b"body")
    }

    #[test]
    fn a_run_ends_before_the_first_odd_send() {
        let mut data = send("T", 0, 1, "UNIQ_KEY\\u0001u\\u0002KEYS\\u0001a b");
        data.extend(send("U", 1, 2, ""));
        let whole = data.len();
        data.extend(send("V", 0, 3, "DELAY\\u00013"));
        data.extend(send("T", 0, 4, ""));
        let run = cut(&data, 0, 1000).unwrap();
        assert_eq!((run.sends.len(), run.sends[1].body.end()), (2, whole));
        assert_eq!(run.sends[0].names, 3);
        assert_eq!(run.sends[0].key_characters, 3);
        assert_eq!(run.sends[1].topic, 1);
        assert_eq!(run.topics.all().len(), 2);
        assert_eq!(run.texts, b"UNIQ_KEY\x01u\x02KEYS\x01a b");
    }

    #[test]
    fn a_run_needs_one_ordinary_send() {
        assert!(cut(b"", 0, 1000).is_none());
        assert!(cut(&send("T", 0, 3, "DELAY\\u00013"), 0, 1000).is_none());
        assert!(cut(&send("T/", 0, 3, ""), 0, 1000).is_none());
        assert!(cut(&send("", 0, 3, ""), 0, 1000).is_none());
        assert!(cut(&send(&"T".repeat(127), 0, 3, ""), 0, 1000).is_some());
        assert!(cut(&send(&"T".repeat(128), 0, 3, ""), 0, 1000).is_none());
    }

    #[test]
    fn a_run_has_sends_of_both_codes() {
        let mut data = send("T", 0, 1, "");
        let long = "{\"code\":10,\"extFields\":{\"topic\":\"T\",\"queueId\":\"0\"},\"opaque\":2}";
        data.extend(frame(long, b""));
        data.extend(frame(&long.replace("10", "11"), b""));
        assert_eq!(cut(&data, 0, 1000).unwrap().sends.len(), 2);
    }

    #[test]
    fn a_part_is_a_run_of_its_own() {
        let mut data = send("T", 0, 1, "A\\u0001bb");
        data.extend(send("U", 0, 2, "KEYS\\u0001k"));
        let run = cut(&data, 0, 1000).unwrap();
        let part = run.part(1, 2).unwrap();
        assert_eq!((part.sends.len(), part.topics.name(0)), (1, Some("U")));
        assert_eq!(part.texts, b"KEYS\x01k");
        assert_eq!(part.sends[0].sought.keys.of(&part.texts), b"k");
        assert_eq!(part.sends[0].topic, 0);
        assert!(run.part(1, 1).is_none() && run.part(0, 3).is_none());
    }

    #[test]
    fn transactions_and_answers_are_odd() {
        for (flag, sys_flag, is_ordinary) in [
            (0, 3, true),
            (1, 0, false),
            (2, 0, true),
            (0, 4, false),
            (0, 8, false),
        ] {
            let header = format!(
                "{{\"code\":310,\"flag\":{flag},\"extFields\":{{\"b\":\"T\",\"e\":0,\"f\":{sys_flag}}},\"opaque\":1}}"
            );
            assert_eq!(cut(&frame(&header, b""), 0, 1000).is_some(), is_ordinary);
        }
    }

    #[test]
    fn queues_fit_where_they_exist() {
        let mut data = send("T", 7, 1, "");
        data.extend(send("U", 0, 2, ""));
        let run = cut(&data, 0, 1000).unwrap();
        assert_eq!(run.fit(&[8, 1]), 2);
        assert_eq!(run.fit(&[7, 1]), 0);
        assert_eq!(run.fit(&[8, 0]), 1);
        assert_eq!(run.fit(&[8]), 1);
        assert_eq!(cut(&send("T", -1, 1, ""), 0, 1000).unwrap().fit(&[8]), 0);
    }

    #[test]
    fn a_one_way_send_has_no_answer() {
        let header = "{\"code\":310,\"flag\":2,\"extFields\":{\"b\":\"T\",\"e\":0},\"opaque\":1}";
        assert_eq!(
            cut(&frame(header, b""), 0, 1000).unwrap().sends[0].opaque,
            None
        );
    }
}
