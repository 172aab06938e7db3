//! The JSON of headers, as far as it is ordinary: strings, whole numbers, `true`, `false`, `null`.
//!
//! White space is ordinary, and so is any order of members. A member that is an object or an array,
//! an odd spelling of a number and everything that JSON does not allow make the reader give up.

use crate::rules::{Rule, forbids, holds};

const ONES: u64 = 0x0101_0101_0101_0101;
const LOWEST: i64 = i32::MIN as i64;
const HIGHEST: i64 = i32::MAX as i64;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Reads from the start of valid UTF-8.
pub struct Json<'a> {
    data: &'a [u8],
    at: usize,
}

/// The characters of a string as they stand between its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    pub bytes: &'a [u8],
    pub has_escapes: bool,
}

impl<'a> Json<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    /// The next byte, which stays; `None` at the end.
    fn next(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    pub fn white(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.next() {
            self.at += 1;
        }
    }

    /// Passes this byte, and white space before and after it.
    pub fn pass(&mut self, byte: u8) -> Option<()> {
        self.white();
        self.pass_now(byte)?;
        self.white();
        Some(())
    }

    fn pass_now(&mut self, byte: u8) -> Option<()> {
        if self.next()? != byte {
            return None;
        }
        self.at += 1;
        Some(())
    }

    /// After a member: whether another one follows, or the object ends.
    pub fn more(&mut self) -> Option<bool> {
        self.white();
        let byte = self.next()?;
        self.at += 1;
        self.white();
        match byte {
            b',' => Some(true),
            b'}' => Some(false),
            _ => None,
        }
    }

    /// Passes the brace that ends an object without members.
    pub fn is_empty_object(&mut self) -> bool {
        self.pass_now(b'}').is_some()
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.data.len()
    }

    fn pass_word(&mut self, word: &[u8]) -> Option<()> {
        if !self.data.get(self.at..)?.starts_with(word) {
            return None;
        }
        self.at += word.len();
        Some(())
    }

    /// The string that begins here. Its escapes are not looked at: see `unescape`.
    pub fn string(&mut self) -> Option<Raw<'a>> {
        self.pass_now(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_bytes(self.data.get(self.at..)?);
            match self.next()? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                }
                _ if holds(Rule::ControlsAreEscaped) => return None,
                _ => self.at += 1,
            }
        }
        let bytes = self.data.get(start..self.at)?;
        self.at += 1;
        Some(Raw { bytes, has_escapes })
    }

    /// A whole number within these limits, which may stand in quotes.
    fn number(&mut self, low: i64, high: i64) -> Option<i64> {
        if self.next()? == b'"' {
            return number_of(self.string()?.bytes, low, high);
        }
        self.bare_number(low, high)
    }

    fn bare_number(&mut self, low: i64, high: i64) -> Option<i64> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.next() {
            self.at += 1;
        }
        number_of(self.data.get(start..self.at)?, low, high)
    }

    /// An int32, which may stand in quotes.
    pub fn int32(&mut self) -> Option<i32> {
        self.number(LOWEST, HIGHEST).map(|number| number as i32)
    }

    /// An int32 without quotes.
    pub fn bare_int32(&mut self) -> Option<i32> {
        self.bare_number(LOWEST, HIGHEST)
            .map(|number| number as i32)
    }

    /// An int64, which may stand in quotes.
    pub fn int64(&mut self) -> Option<i64> {
        self.number(i64::MIN, i64::MAX)
    }

    /// `true` or `false`, which may stand in quotes. RocketMQ's C++ client writes `"0"` for false.
    pub fn boolean(&mut self) -> Option<bool> {
        if self.next()? == b'"' {
            let word = self.string()?.bytes;
            return match word {
                b"true" => Some(true),
                b"false" | b"0" => Some(false),
                _ if holds(Rule::BooleansAreWords) => None,
                _ => Some(false),
            };
        }
        if self.pass_word(b"true").is_some() {
            return Some(true);
        }
        self.pass_word(b"false").map(|()| false)
    }

    /// Passes a value that nobody needs; `None` for an object or an array.
    pub fn skip(&mut self) -> Option<()> {
        match self.next()? {
            b'"' => self.string().and_then(check_escapes),
            b't' => self.pass_word(b"true"),
            b'f' => self.pass_word(b"false"),
            b'n' => self.pass_word(b"null"),
            _ => self.bare_number(i64::MIN, i64::MAX).map(|_| ()),
        }
    }
}

/// How many bytes there are before the first quote, backslash or control character.
fn plain_bytes(data: &[u8]) -> usize {
    let (eights, _) = data.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        let quote = word ^ (ONES * b'"' as u64);
        let escape = word ^ (ONES * b'\\' as u64);
        let found = (quote.wrapping_sub(ONES) & !quote)
            | (escape.wrapping_sub(ONES) & !escape)
            | (word.wrapping_sub(ONES * b' ' as u64) & !word);
        let found = found & HIGHS;
        if found != 0 {
            return number * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let start = eights.len() * 8;
    let tail = data.get(start..).unwrap_or_default();
    let is_special = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < b' ';
    start + tail.iter().position(is_special).unwrap_or(tail.len())
}

/// The number that these digits are, if they are its only spelling: no plus, no zero in front, no
/// fraction.
pub fn number_of(text: &[u8], low: i64, high: i64) -> Option<i64> {
    let (is_negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    if forbids(
        Rule::NumbersAreCanonical,
        digits.first() == Some(&b'0') && (digits.len() > 1 || is_negative),
    ) {
        return None;
    }
    let mut size: u64 = 0; // 19 digits fit
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        size = size * 10 + u64::from(digit - b'0');
    }
    let value = if is_negative {
        0_i64.checked_sub_unsigned(size)?
    } else {
        i64::try_from(size).ok()?
    };
    if forbids(Rule::NumbersFit, !(low..=high).contains(&value)) {
        return None;
    }
    Some(value)
}

/// Appends the characters of a string; `None` where an escape is none of JSON's.
pub fn unescape(raw: Raw<'_>, text: &mut Vec<u8>) -> Option<()> {
    if !raw.has_escapes {
        text.extend_from_slice(raw.bytes);
        return Some(());
    }
    let mut rest = raw.bytes;
    while !rest.is_empty() {
        let plain = rest
            .iter()
            .position(|&byte| byte == b'\\')
            .unwrap_or(rest.len());
        let (before, from) = rest.split_at_checked(plain)?;
        text.extend_from_slice(before);
        if from.is_empty() {
            break;
        }
        let (character, length) = escaped(from)?;
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = from.get(length..)?;
    }
    Some(())
}

fn check_escapes(raw: Raw<'_>) -> Option<()> {
    if raw.has_escapes {
        unescape(raw, &mut Vec::new())
    } else {
        Some(())
    }
}

/// The character of the escape at the start, and the length of the escape.
fn escaped(data: &[u8]) -> Option<(char, usize)> {
    let character = match data.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{C}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return escaped_unit(data),
        _ => return None,
    };
    Some((character, 2))
}

fn escaped_unit(data: &[u8]) -> Option<(char, usize)> {
    let first = unit_at(data, 0)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = match unit_at(data, 6) {
        Some(second) if (0xD800..0xDC00).contains(&first) => second,
        _ if holds(Rule::SurrogatesArePaired) => return None,
        _ => return Some((char::REPLACEMENT_CHARACTER, 6)),
    };
    if !(0xDC00..0xE000).contains(&second) {
        return None;
    }
    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    char::from_u32(code).map(|character| (character, 12))
}

fn unit_at(data: &[u8], at: usize) -> Option<u32> {
    let escape = data.get(at..at.checked_add(6)?)?;
    let digits = escape.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |value: u32, &digit| {
        char::from(digit)
            .to_digit(16)
            .map(|unit| (value << 4) | unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(json: &str) -> Option<String> {
        let mut reader = Json::new(json.as_bytes());
        let mut text = Vec::new();
        unescape(reader.string()?, &mut text)?;
        reader.is_at_end().then_some(())?;
        String::from_utf8(text).ok()
    }

    #[test]
    fn strings_are_read_with_all_escapes() {
        assert_eq!(text_of(r#""""#).as_deref(), Some(""));
        assert_eq!(
            text_of(r#""a\u0001b\"\\\/\b\f\n\r\té\ud83d\uDE00""#).as_deref(),
            Some("a\u{1}b\"\\/\u{8}\u{C}\n\r\té\u{1F600}")
        );
    }

    #[test]
    fn strings_that_are_none_are_not_read() {
        for json in [
            "\"",
            "\"a",
            "\"a\\",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12G4\"",
            "\"\\ud83d\"",
            "\"\\ude00\"",
            "\"\\ud83d\\u0041\"",
            "\"a\u{1}\"",
            "\"a\nbbbbbbbbbbbb\"",
            "a",
        ] {
            assert_eq!(text_of(json), None, "{json:?}");
        }
    }

    #[test]
    fn a_special_byte_is_found_wherever_it_is() {
        for size in 0..40 {
            for special in [b'"', b'\\', 0, 0x1F] {
                let mut data = vec![0xC3; size];
                data.push(special);
                data.extend([b'!'; 9]);
                assert_eq!(plain_bytes(&data), size);
            }
            assert_eq!(plain_bytes(&vec![b'#'; size]), size);
        }
    }

    #[test]
    fn numbers_have_one_spelling() {
        let number = |text: &str| Json::new(text.as_bytes()).int32();
        assert_eq!(number("7"), Some(7));
        assert_eq!(number("\"-7\""), Some(-7));
        assert_eq!(number("0"), Some(0));
        assert_eq!(Json::new(b"\"7\"").bare_int32(), None);
        assert_eq!(Json::new(b"-7").bare_int32(), Some(-7));
        assert_eq!(number("-2147483648"), Some(i32::MIN));
        for odd in [
            "",
            "-",
            "007",
            "-0",
            "+1",
            "1.0",
            "1e3",
            "\"\"",
            "\" 1\"",
            "2147483648",
            "x",
            "\"1",
            "99999999999999999999",
        ] {
            assert_eq!(number(odd), None, "{odd:?}");
        }
        assert_eq!(Json::new(b"-9223372036854775808").int64(), Some(i64::MIN));
        assert_eq!(Json::new(b"9223372036854775808").int64(), None);
    }

    #[test]
    fn booleans_are_words() {
        let boolean = |text: &str| Json::new(text.as_bytes()).boolean();
        assert_eq!(boolean("true"), Some(true));
        assert_eq!(boolean("\"false\""), Some(false));
        for odd in ["\"TRUE\"", "1", "null", "tru", ""] {
            assert_eq!(boolean(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn values_that_nobody_needs_are_passed() {
        for value in ["\"a\\n\"", "true", "false", "null", "-12"] {
            let mut reader = Json::new(value.as_bytes());
            assert_eq!(reader.skip(), Some(()));
            assert!(reader.is_at_end());
        }
        for value in ["{}", "[1]", "\"\\x\"", "nul", "1.5"] {
            let mut reader = Json::new(value.as_bytes());
            assert!(reader.skip().is_none() || !reader.is_at_end(), "{value:?}");
        }
    }

    #[test]
    fn white_space_is_passed() {
        let mut reader = Json::new(b" \t{ \r\n}");
        assert_eq!(reader.pass(b'{'), Some(()));
        assert!(reader.is_empty_object());
        assert!(reader.is_at_end());
        let mut reader = Json::new(b" , }");
        assert_eq!(reader.more(), Some(true));
        assert_eq!(reader.more(), Some(false));
        assert_eq!(reader.more(), None);
    }
}
