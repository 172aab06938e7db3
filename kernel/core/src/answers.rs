//! The frames that answer sends.

use crate::run::Run;

const LENGTH: usize = 4;

/// The header of an answer, cut at queue id, physical offset, queue offset and opaque.
pub type Template<'a> = [&'a [u8]; 5];

/// A frame for each record that has an opaque. `None` where there are not as many opaques as
/// records.
pub fn answers(run: &Run, opaques: &[Option<i32>], template: &Template<'_>) -> Option<Vec<u8>> {
    if opaques.len() != run.records.len() {
        return None;
    }
    let fixed: usize = template.iter().map(|piece| piece.len()).sum();
    let mut frames = Vec::with_capacity(opaques.len() * (fixed + 64));
    for (record, opaque) in run.records.iter().zip(opaques) {
        let Some(opaque) = opaque else { continue };
        let start = frames.len();
        let [first, second, third, fourth, last] = template;
        frames.extend_from_slice(&[0; 2 * LENGTH]);
        frames.extend_from_slice(first);
        decimal(&mut frames, record.queue_id.into());
        frames.extend_from_slice(second);
        hexadecimal(&mut frames, record.position);
        frames.extend_from_slice(third);
        decimal(&mut frames, record.number);
        frames.extend_from_slice(fourth);
        decimal(&mut frames, (*opaque).into());
        frames.extend_from_slice(last);
        let size = frames.len() - start - 2 * LENGTH;
        let words = [(size + LENGTH) as u32, size as u32].map(u32::to_be_bytes);
        let place = frames.get_mut(start..start + 2 * LENGTH)?;
        place.copy_from_slice(words.as_flattened());
    }
    Some(frames)
}

fn decimal(to: &mut Vec<u8>, number: i64) {
    if number < 0 {
        to.push(b'-');
    }
    let start = to.len();
    let mut rest = number.unsigned_abs();
    loop {
        to.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Some(digits) = to.get_mut(start..) {
        digits.reverse();
    }
}

fn hexadecimal(to: &mut Vec<u8>, number: i64) {
    let digit = |place: u32| match (number >> (place * 4) & 15) as u8 {
        value @ 0..10 => b'0' + value,
        value => b'A' + value - 10,
    };
    to.extend((0..16).rev().map(digit));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run;

    #[test]
    fn each_opaque_gets_its_answer() {
        let run = run(&[("T", ""), ("T", ""), ("T", "")]);
        let template: Template = [b"q", b" p", b" n", b" o", b"."];
        let frames = answers(&run, &[Some(-7), None, Some(i32::MAX)], &template).unwrap();
        let first = b"q3 p00000000000001F4 n7 o-7.";
        assert_eq!(frames[..4], (first.len() as u32 + 4).to_be_bytes());
        assert_eq!(frames[4..8], (first.len() as u32).to_be_bytes());
        assert_eq!(&frames[8..8 + first.len()], first);
        assert!(frames.ends_with(b" o2147483647."));
        assert_eq!(answers(&run, &[None], &template), None);
        assert_eq!(answers(&run, &[None; 3], &template), Some(Vec::new()));
    }

    #[test]
    fn numbers_have_all_their_digits() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            let (mut found, mut hex) = (Vec::new(), Vec::new());
            decimal(&mut found, number);
            hexadecimal(&mut hex, number);
            assert_eq!(String::from_utf8(found).unwrap(), number.to_string());
            assert_eq!(String::from_utf8(hex).unwrap(), format!("{number:016X}"));
        }
    }
}
