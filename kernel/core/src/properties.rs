//! The properties of a message: name 0x01 value, pieces separated by 0x02.

use crate::bytes::Span;
use crate::rules::{Rule, forbids, holds};

const NAME_END: u8 = 1;
const PIECE_END: u8 = 2;
const KEYS: &[u8] = b"KEYS";
const WAIT_TRUE: &[u8] = b"\x02WAIT\x01true";
/// Most bytes of properties that a record can have.
pub const MAX_SIZE: usize = 32_767;
/// Most characters of a client's properties with which CLUSTER and the sender's mark surely fit.
pub const MOST_CHARACTERS: usize = MAX_SIZE / 4 - 512;
const MANY_KEYS: usize = 64;

/// The properties by which messages are sought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sought {
    pub keys: Span,
    pub uniq_key: Span,
    pub tags: Span,
}

impl Sought {
    /// The same parts after the text that began at `from` was copied to `to`.
    pub fn moved(self, from: usize, to: usize) -> Self {
        let moved = |span: Span| Span {
            at: span.at.saturating_sub(from).saturating_add(to),
            len: span.len,
        };
        Self {
            keys: moved(self.keys),
            uniq_key: moved(self.uniq_key),
            tags: moved(self.tags),
        }
    }
}

/// Parts of the text at `start`, whose end is that of `text`.
struct Pieces<'a> {
    text: &'a [u8],
    at: usize,
    is_over: bool,
}

/// A piece with its separator, or without one.
struct Piece<'a> {
    name: &'a [u8],
    value: Span,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.is_over {
            return None;
        }
        let start = self.at;
        let rest = self.text.get(start..)?;
        let size = rest.iter().position(|&byte| byte == PIECE_END);
        self.is_over = size.is_none();
        let piece = rest.get(..size.unwrap_or(rest.len()))?;
        let end = start + piece.len();
        self.at = end + 1;
        let name_size = piece.iter().position(|&byte| byte == NAME_END);
        let name_size = name_size.unwrap_or(piece.len());
        Some(Piece {
            name: piece.get(..name_size)?,
            value: Span::new((start + name_size + 1).min(end), end),
        })
    }
}

fn pieces(text: &[u8], start: usize) -> Pieces<'_> {
    Pieces {
        text,
        at: start,
        is_over: false,
    }
}

/// The sought properties of a stored record; where a name comes twice, the last value counts.
pub fn sought(text: &[u8]) -> Sought {
    let mut found = Sought::default();
    for piece in pieces(text, 0) {
        if piece.value.len > 0 {
            note(&mut found, piece.name, piece.value);
        }
    }
    found
}

fn note(found: &mut Sought, name: &[u8], value: Span) {
    match name {
        b"UNIQ_KEY" => found.uniq_key = value,
        KEYS => found.keys = value,
        b"TAGS" => found.tags = value,
        _ => {}
    }
}

/// Brings the properties of a send, from `start` on, into the form in which they are stored.
///
/// `None` where a property asks for more than an append, or there is no sense in one.
pub fn ordinary(text: &mut Vec<u8>, start: usize) -> Option<Sought> {
    let stored = text.get(start..)?;
    if forbids(
        Rule::PropertiesAreShort,
        stored.len() > MOST_CHARACTERS && characters(stored) > MOST_CHARACTERS,
    ) {
        return None;
    }
    // WAIT is true unless a client says otherwise; a true one is not stored.
    if let Some(place) = place_of(stored, WAIT_TRUE) {
        let at = start + place;
        let end = at + WAIT_TRUE.len();
        if matches!(text.get(end), None | Some(&PIECE_END)) {
            text.drain(at..end);
        }
    }
    if text.len() > start && text.last() == Some(&PIECE_END) {
        text.pop();
    }
    let mut found = Sought::default();
    if text.len() == start {
        return Some(found);
    }
    for piece in pieces(text, start) {
        if is_odd(piece.name)
            || forbids(Rule::PropertiesHaveNames, piece.name.is_empty())
            || forbids(Rule::PropertiesHaveValues, piece.value.len == 0)
            || (piece.name == KEYS
                && forbids(Rule::KeysAreFew, has_many_keys(piece.value.of(text))))
        {
            return None;
        }
        note(&mut found, piece.name, piece.value);
    }
    Some(found)
}

/// Whether a property of this name asks for more than an append.
fn is_odd(name: &[u8]) -> bool {
    let rule = match name {
        b"DELAY" => Rule::DelayIsOdd,
        b"TRAN_MSG" => Rule::TransactionIsOdd,
        b"WAIT" => Rule::WaitIsOdd,
        b"CLUSTER" => Rule::ClusterIsOdd,
        b"RMQHA_SENT_BY" => Rule::SenderIsOdd,
        b"TIMER_SRC" => Rule::TimerSourceIsOdd,
        b"POP_CK" | b"POP_SRC" => Rule::ReceiptIsOdd,
        b"TIMER_DELAY_SEC"
        | b"TIMER_DELAY_MS"
        | b"TIMER_DELIVER_MS"
        | b"TIMER_DEL_UNIQKEY"
        | b"_SYS_MSG_PRIORITY_"
        | b"__LITE_TOPIC" => Rule::ServiceOfRocketMq5IsOdd,
        _ => return false,
    };
    holds(rule)
}

fn has_many_keys(keys: &[u8]) -> bool {
    keys.len() > 2 * MANY_KEYS
        && characters(keys) > 2 * MANY_KEYS
        && keys.iter().filter(|&&byte| byte == b' ').count() > MANY_KEYS
}

/// How many characters UTF-8 has.
pub fn characters(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}

/// The keys in a value of KEYS.
pub fn keys_in(keys: &[u8]) -> impl Iterator<Item = &[u8]> {
    keys.split(|&byte| byte == b' ')
        .filter(|key| !key.is_empty())
}

/// How many items of the index a message gets.
pub fn names_of(sought: &Sought, keys: &[u8]) -> u32 {
    u32::from(sought.uniq_key.len > 0) + keys_in(keys).count() as u32
}

fn place_of(text: &[u8], part: &[u8]) -> Option<usize> {
    let first = *part.first()?;
    let mut at = 0;
    loop {
        at += text.get(at..)?.iter().position(|&byte| byte == first)?;
        if text.get(at..)?.starts_with(part) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> Option<(String, String, String, String)> {
        let mut all = b"before".to_vec();
        all.extend(text.as_bytes());
        let found = ordinary(&mut all, 6)?;
        let part = |span: Span| String::from_utf8(span.of(&all).to_vec()).unwrap();
        Some((
            String::from_utf8(all[6..].to_vec()).unwrap(),
            part(found.keys),
            part(found.uniq_key),
            part(found.tags),
        ))
    }

    fn text_of(text: &str) -> Option<String> {
        stored(text).map(|parts| parts.0)
    }

    #[test]
    fn a_true_wait_and_a_last_separator_are_left_out() {
        assert_eq!(text_of("A\x01b\x02WAIT\x01true").as_deref(), Some("A\x01b"));
        assert_eq!(
            text_of("A\x01b\x02WAIT\x01true\x02C\x01d\x02").as_deref(),
            Some("A\x01b\x02C\x01d")
        );
        assert_eq!(text_of("").as_deref(), Some(""));
        assert_eq!(text_of("\x02").as_deref(), Some(""));
    }

    #[test]
    fn what_asks_for_more_than_an_append_is_odd() {
        for odd in [
            "DELAY\x013",
            "TRAN_MSG\x01true",
            "A\x01b\x02WAIT\x01false",
            "WAIT\x01true",
            "A\x01b\x02WAIT\x01trueX",
            "CLUSTER\x01c",
            "RMQHA_SENT_BY\x01x",
            "TIMER_SRC\x0110-2",
            "POP_CK\x010 1 2 0 0 b 0 0",
            "POP_SRC\x013-0-17-99",
            "TIMER_DELAY_SEC\x011",
            "__LITE_TOPIC\x01t",
            "A",
            "A\x01",
            "\x01b",
            "A\x01b\x02\x02C\x01d",
            "A\x01b\x02WAIT\x01true\x02WAIT\x01true",
        ] {
            assert_eq!(text_of(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let text = "KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02KEYS\x01c\x01d";
        let (_, keys, uniq_key, tags) = stored(text).unwrap();
        assert_eq!([keys, uniq_key, tags], ["c\x01d", "u", "t"]);
    }

    #[test]
    fn long_properties_and_many_keys_are_odd() {
        let long = |count: usize| format!("A\x01{}", "é".repeat(count));
        assert!(text_of(&long(MOST_CHARACTERS - 2)).is_some());
        assert!(text_of(&long(MOST_CHARACTERS - 1)).is_none());
        assert!(text_of(&format!("KEYS\x01{}", "k ".repeat(64))).is_some());
        assert!(text_of(&format!("KEYS\x01{}", "k ".repeat(65))).is_none());
        assert!(text_of(&format!("KEYS\x01{}", "k".repeat(130))).is_some());
        assert!(text_of(&format!("KEYS\x01{}\x02KEYS\x01k", "k ".repeat(65))).is_none());
    }

    #[test]
    fn a_stored_text_may_be_anything() {
        let text = b"\x02A\x02KEYS\x01\x02UNIQ_KEY\x01u\x02\x01x";
        let found = sought(text);
        assert_eq!(found.keys.of(text), b"");
        assert_eq!(found.uniq_key.of(text), b"u");
        assert_eq!(sought(b""), Sought::default());
    }

    #[test]
    fn empty_keys_are_none() {
        assert_eq!(keys_in(b" a  b ").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(keys_in(b"").count(), 0);
    }
}
