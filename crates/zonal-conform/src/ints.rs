//! Integers in a text that is written to a sysctl, as a kernel reads them.
//!
//! Measured on 6.18 by writing to `vm.lowmem_reserve_ratio` and `vm.extfrag_threshold`:
//! - Numbers are separated by blanks. A comma separates nothing: `32,16` is no number.
//! - `0x` starts a hexadecimal number, another leading `0` an octal one; `+` is not accepted.
//! - A number is a 32-bit integer of at most 20 characters, its sign included.
//! - Numbers before the first bad word are stored. A sysctl of one number ignores what follows it.
//! - A sysctl of one number refuses a bad word, and a text without any.
//! - `vm.lowmem_reserve_ratio` refuses nothing: `32,16,8,0` changes no ratio and is taken.

/// Characters of a number that a kernel reads.
const LENGTH_MAX: usize = 20;

/// The numbers before the first word that is none.
pub fn leading(text: &str) -> Vec<i32> {
    let is_blank = |c: char| c.is_ascii_whitespace() || c == '\u{b}';
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.map_while(number).collect()
}

fn number(word: &str) -> Option<i32> {
    if word.len() > LENGTH_MAX {
        return None;
    }
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(digits) => (digits, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // `from_str_radix` also reads signs.
    let number = Some(digits).filter(|digits| digits.starts_with(|c: char| c.is_digit(radix)))?;
    let number = i64::from_str_radix(number, radix).ok()?;
    i32::try_from(sign * number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as 6.18 stored it.
    #[test]
    fn texts_are_read_as_a_kernel_reads_them() {
        for (text, numbers) in [
            ("256 256 32 7", &[256, 256, 32, 7][..]),
            ("256 256 32\n7 8", &[256, 256, 32, 7, 8]),
            (" 1 2 ", &[1, 2]),
            ("1 \u{b}2", &[1, 2]),
            ("1\t5,9 3", &[1]),
            ("32,16,8,0", &[]),
            ("0x9 010 0X9", &[9, 8, 9]),
            ("-5 -0x3 -0", &[-5, -3, 0]),
            ("1 +6", &[1]),
            ("6 x", &[6]),
            ("6x 2", &[]),
            ("4 0x", &[4]),
            ("4 08", &[4]),
            ("4 - 5", &[4]),
            ("4 --5", &[4]),
            ("2147483647 2147483648", &[i32::MAX]),
            ("-2147483648 -2147483649", &[i32::MIN]),
            ("3 99999999999999999999999", &[3]),
            ("00000000000000000007 000000000000000000007", &[7]),
            ("-0000000000000000007 -00000000000000000007", &[-7]),
            ("", &[]),
        ] {
            assert_eq!(leading(text), numbers, "{text:?}");
        }
    }
}
