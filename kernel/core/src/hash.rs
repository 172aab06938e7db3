//! Java's hash of a string, on which tag codes and index keys depend.

/// Goes on with the hash of a text by more of it: 31 times the hash, plus each UTF-16 unit.
pub fn java_hash_from(start: i32, text: &str) -> i32 {
    if text.is_ascii() {
        return text
            .bytes()
            .fold(start, |hash, unit| step(hash, u16::from(unit)));
    }
    text.encode_utf16().fold(start, step)
}

pub fn java_hash(text: &str) -> i32 {
    java_hash_from(0, text)
}

fn step(hash: i32, unit: u16) -> i32 {
    hash.wrapping_mul(31).wrapping_add(i32::from(unit))
}

/// The hash that an item of the index carries, from that of `topic#key`: never negative.
pub fn index_hash(hash: i32) -> i32 {
    if hash >= 0 {
        hash
    } else {
        hash.wrapping_neg() & i32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_of_java() {
        assert_eq!(java_hash("TagA"), 2_598_919);
        assert_eq!(java_hash("hello world rocketmq"), -1_179_399_852);
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("\u{1F600}"), (0xD83D * 31) + 0xDE00);
    }

    #[test]
    fn a_text_may_be_hashed_in_two_parts() {
        assert_eq!(
            java_hash_from(java_hash("topic#"), "key"),
            java_hash("topic#key")
        );
    }

    #[test]
    fn a_hash_of_the_index_is_not_negative() {
        assert_eq!(index_hash(-5), 5);
        assert_eq!(index_hash(i32::MIN), 0);
        assert_eq!(index_hash(7), 7);
    }
}
