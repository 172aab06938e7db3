//! The header of a send, in the short names of code 310 and in the long ones of code 10.

use crate::json::{Json, Raw, unescape};
use crate::rules::{Rule, forbids};

/// The names of the fields of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Long,
    Short,
}

/// With this a header begins that has the code first, as all clients write it.
const STARTS: [(&[u8], Form); 2] = [
    (b"{\"code\":310", Form::Short),
    (b"{\"code\":10", Form::Long),
];

/// The names of a header's fields, by its code; `None` where it is of no send.
pub fn form_of(header: &[u8]) -> Option<Form> {
    let (start, form) = STARTS
        .into_iter()
        .find(|(start, _)| header.starts_with(start))?;
    match header.get(start.len())? {
        b',' | b' ' | b'\t' | b'\n' | b'\r' => Some(form),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    ProducerGroup,
    Topic,
    DefaultTopic,
    DefaultTopicQueues,
    QueueId,
    SysFlag,
    BornTimestamp,
    Flag,
    Properties,
    ReconsumeTimes,
    UnitMode,
    MaxReconsumeTimes,
    Batch,
    BrokerName,
}

impl Form {
    fn field(self, name: &[u8]) -> Option<Field> {
        use Field::*;
        Some(match (self, name) {
            (Form::Short, b"a") | (Form::Long, b"producerGroup") => ProducerGroup,
            (Form::Short, b"b") | (Form::Long, b"topic") => Topic,
            (Form::Short, b"c") | (Form::Long, b"defaultTopic") => DefaultTopic,
            (Form::Short, b"d") | (Form::Long, b"defaultTopicQueueNums") => DefaultTopicQueues,
            (Form::Short, b"e") | (Form::Long, b"queueId") => QueueId,
            (Form::Short, b"f") | (Form::Long, b"sysFlag") => SysFlag,
            (Form::Short, b"g") | (Form::Long, b"bornTimestamp") => BornTimestamp,
            (Form::Short, b"h") | (Form::Long, b"flag") => Flag,
            (Form::Short, b"i") | (Form::Long, b"properties") => Properties,
            (Form::Short, b"j") | (Form::Long, b"reconsumeTimes") => ReconsumeTimes,
            (Form::Short, b"k") | (Form::Long, b"unitMode") => UnitMode,
            (Form::Short, b"l") | (Form::Long, b"maxReconsumeTimes") => MaxReconsumeTimes,
            (Form::Short, b"m") | (Form::Long, b"batch") => Batch,
            (Form::Short, b"n") | (Form::Long, b"bname") => BrokerName,
            _ => return None,
        })
    }
}

/// What a header says, as far as a run needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    pub opaque: i32,
    pub flag: i32,
    pub topic: Option<Raw<'a>>,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub message_flag: i32,
    pub properties: Option<Raw<'a>>,
    pub reconsume_times: i32,
}

/// Reads a header, which is UTF-8; `None` for all but an ordinary send.
pub fn read<'a>(data: &'a [u8], form: Form) -> Option<Header<'a>> {
    let mut json = Json::new(data);
    let mut header = Header::default();
    let mut seen = Seen::default();
    json.pass(b'{')?;
    loop {
        let name = json.string()?;
        json.pass(b':')?;
        if name.has_escapes {
            return None;
        }
        match name.bytes {
            b"code" => {
                seen.once(0)?;
                json.skip()?;
            }
            b"opaque" => {
                seen.once(1)?;
                header.opaque = json.bare_int32()?;
            }
            b"flag" => {
                seen.once(2)?;
                header.flag = json.bare_int32()?;
            }
            b"version" => {
                seen.once(3)?;
                json.bare_int32()?;
            }
            b"extFields" => {
                seen.once(4)?;
                read_fields(&mut json, form, &mut header)?;
            }
            _ => json.skip()?,
        }
        if !json.more()? {
            break;
        }
    }
    if forbids(Rule::NothingFollows, !json.is_at_end())
        || forbids(Rule::NeededFieldsAreThere, !(seen.has(1) && seen.has(4)))
    {
        return None;
    }
    Some(header)
}

fn read_fields<'a>(json: &mut Json<'a>, form: Form, header: &mut Header<'a>) -> Option<()> {
    let mut seen = Seen::default();
    json.pass(b'{')?;
    if json.is_empty_object() {
        return None;
    }
    loop {
        let name = json.string()?;
        json.pass(b':')?;
        if name.has_escapes {
            return None;
        }
        if let Some(field) = form.field(name.bytes) {
            seen.once(field as u32)?;
            match field {
                Field::Topic => header.topic = Some(json.string()?),
                Field::Properties => header.properties = Some(json.string()?),
                Field::QueueId => header.queue_id = json.int32()?,
                Field::SysFlag => header.sys_flag = json.int32()?,
                Field::BornTimestamp => header.born_timestamp = json.int64()?,
                Field::Flag => header.message_flag = json.int32()?,
                Field::ReconsumeTimes => header.reconsume_times = json.int32()?,
                Field::ProducerGroup | Field::DefaultTopic | Field::BrokerName => {
                    check(json.string()?)?;
                }
                Field::DefaultTopicQueues | Field::MaxReconsumeTimes => {
                    json.int32()?;
                }
                Field::UnitMode => {
                    json.boolean()?;
                }
                Field::Batch => {
                    if forbids(Rule::BatchIsNoSend, json.boolean()?) {
                        return None;
                    }
                }
            }
        } else {
            json.skip()?;
        }
        if !json.more()? {
            break;
        }
    }
    let is_whole = seen.has(Field::Topic as u32) && seen.has(Field::QueueId as u32);
    if forbids(Rule::NeededFieldsAreThere, !is_whole) {
        return None;
    }
    Some(())
}

/// A string that nobody needs must be one all the same.
fn check(raw: Raw<'_>) -> Option<()> {
    if raw.has_escapes {
        unescape(raw, &mut Vec::new())
    } else {
        Some(())
    }
}

/// Which members came; a member that comes twice is odd.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    fn once(&mut self, number: u32) -> Option<()> {
        if self.has(number) {
            return None;
        }
        self.0 |= 1 << number;
        Some(())
    }

    fn has(&self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(fields: &str) -> String {
        format!("{{\"code\":310,\"extFields\":{{{fields}}},\"opaque\":7}}")
    }

    #[test]
    fn a_send_of_each_form_is_read() {
        let text = "{\"code\":310,\"extFields\":{\"a\":\"p\",\"b\":\"T\",\"c\":\"TBW102\",\
            \"d\":\"8\",\"e\":\"3\",\"f\":\"1\",\"g\":\"1700000000000\",\"h\":\"-2\",\
            \"i\":\"K\\u0001v\",\"j\":\"4\",\"k\":\"false\",\"m\":\"false\",\"n\":\"b\"},\
            \"flag\":2,\"language\":\"JAVA\",\"opaque\":  9 ,\
            \"serializeTypeCurrentRPC\":\"JSON\",\"version\":407}\n";
        let header = read(text.as_bytes(), Form::Short).unwrap();
        assert_eq!((header.opaque, header.flag, header.queue_id), (9, 2, 3));
        assert_eq!((header.sys_flag, header.message_flag), (1, -2));
        assert_eq!(header.born_timestamp, 1_700_000_000_000);
        assert_eq!(header.reconsume_times, 4);
        assert_eq!(header.topic.unwrap().bytes, b"T");
        let text = "{\"code\":10,\"opaque\":1,\"extFields\":{\"topic\":\"T\",\"queueId\":\"0\"}}";
        assert!(read(text.as_bytes(), Form::Long).is_some());
        assert!(read(text.as_bytes(), Form::Short).is_none());
    }

    #[test]
    fn only_ordinary_headers_are_read() {
        let fine = "\"b\":\"T\",\"e\":\"0\"";
        assert!(read(short(fine).as_bytes(), Form::Short).is_some());
        for odd in [
            "\"b\":\"T\"",
            "\"e\":\"0\"",
            "\"b\":1,\"e\":\"0\"",
            "\"b\":\"T\",\"e\":\"00\"",
            "\"b\":\"T\",\"e\":\"0\",\"e\":\"1\"",
            "\"b\":\"T\",\"e\":\"0\",\"m\":\"true\"",
            "\"b\":\"T\",\"e\":\"0\",\"x\":{}",
            "\"b\":\"T\",\"e\":null",
            "\"b\":\"T\",\"\\u0065\":0",
            "\"b\":\"T\",\"e\":\"0\",\"k\":\"no\"",
            "\"b\":\"T\",\"e\":\"0\",\"a\":\"\\x\"",
            "",
        ] {
            assert!(read(short(odd).as_bytes(), Form::Short).is_none(), "{odd}");
        }
        for odd in [
            "",
            "{",
            "{}",
            "[]",
            "{\"code\":310}",
            "{\"code\":310,\"extFields\":{\"b\":\"T\",\"e\":0}}",
            "{\"code\":310,\"extFields\":null,\"opaque\":1}",
        ] {
            assert!(read(odd.as_bytes(), Form::Short).is_none(), "{odd}");
        }
        let whole = short(fine);
        for size in 0..whole.len() {
            assert!(read(&whole.as_bytes()[..size], Form::Short).is_none());
        }
        assert!(read(format!("{whole}x").as_bytes(), Form::Short).is_none());
    }
}
