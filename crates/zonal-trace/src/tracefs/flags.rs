//! Meaning of the bits of `gfp_flags` in the recorded kernel.
//!
//! The numbers of allocation flags move between kernels, and the `print fmt` of `mm_page_alloc`
//! tells them: a list of `{ EXPRESSION, "NAME" }`, most of it composites, with every single flag at
//! its end. From each entry whose expression is one bit and whose name is known comes one pair of
//! recorded bit and portable bit.

use crate::gfp;

/// Deepest nesting of parentheses that is read; Linux 6.18 has 18.
const DEPTH_MAX: u32 = 64;

/// Recorded bit to portable flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlagMap {
    /// `None`: the numbering is that of Linux 6.12.
    table: Option<Box<[u32; 32]>>,
}

impl FlagMap {
    /// The numbering of Linux 6.12.
    pub(crate) const IDENTITY: FlagMap = FlagMap { table: None };

    /// Reads the list out of a `print fmt`; without one the numbering of Linux 6.12 is taken.
    pub(crate) fn parse(print: &str) -> FlagMap {
        let mut table = Box::new([0_u32; 32]);
        let mut known = 0;
        for entry in print.split('{').skip(1) {
            let Some((expression, rest)) = entry.rsplit_once(", \"") else { continue };
            let Some((name, _)) = rest.split_once('"') else { continue };
            let Some(flags) = gfp::from_name(name) else { continue };
            let bits = Expression { text: expression.as_bytes(), depth: 0 }.evaluate();
            let Some(bits) = bits.filter(|bits| bits.is_power_of_two()) else { continue };
            if flags.count_ones() <= 1 && bits < 1 << 32 {
                table[bits.trailing_zeros() as usize] = flags;
                known += 1;
            }
        }
        let identity = |(bit, flags): (usize, &u32)| *flags == (1 << bit) & gfp::PORTABLE;
        if known == 0 || table.iter().enumerate().all(identity) {
            return FlagMap::IDENTITY;
        }
        FlagMap { table: Some(table) }
    }

    /// The portable flags of a recorded number; `None` if it has more than 32 bits.
    pub(crate) fn portable(&self, recorded: u64) -> Option<u32> {
        let Some(table) = &self.table else {
            return gfp::normalise(recorded);
        };
        let mut left = u32::try_from(recorded).ok()?;
        let mut flags = 0;
        while left != 0 {
            flags |= table[left.trailing_zeros() as usize];
            left &= left - 1;
        }
        Some(flags)
    }
}

/// A constant expression of C: numbers, casts, `|`, `&`, `~`, `<<` and parentheses.
struct Expression<'a> {
    text: &'a [u8],
    depth: u32,
}

impl Expression<'_> {
    fn evaluate(mut self) -> Option<u64> {
        let value = self.any_of()?;
        self.text.trim_ascii_start().is_empty().then_some(value)
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.text = self.text.trim_ascii_start();
        match self.text.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn any_of(&mut self) -> Option<u64> {
        let mut value = self.all_of()?;
        while self.eat(b"|") {
            value |= self.all_of()?;
        }
        Some(value)
    }

    fn all_of(&mut self) -> Option<u64> {
        let mut value = self.shifted()?;
        while self.eat(b"&") {
            value &= self.shifted()?;
        }
        Some(value)
    }

    fn shifted(&mut self) -> Option<u64> {
        let mut value = self.single()?;
        while self.eat(b"<<") {
            value = value.checked_shl(u32::try_from(self.single()?).ok()?)?;
        }
        Some(value)
    }

    fn single(&mut self) -> Option<u64> {
        self.depth += 1;
        let value = self.single_at_depth();
        self.depth -= 1;
        value
    }

    fn single_at_depth(&mut self) -> Option<u64> {
        if self.depth > DEPTH_MAX {
            return None;
        }
        if self.eat(b"~") {
            return self.single().map(|value| !value);
        }
        if self.eat(b"(") {
            self.text = self.text.trim_ascii_start();
            if self.text.first().is_some_and(u8::is_ascii_alphabetic) {
                // A cast: the type up to its parenthesis, then what is cast.
                let close = self.text.iter().position(|&byte| byte == b')')?;
                self.text = &self.text[close + 1..];
                return self.single();
            }
            let value = self.any_of()?;
            return self.eat(b")").then_some(value);
        }
        self.number()
    }

    fn number(&mut self) -> Option<u64> {
        let hexadecimal = self.eat(b"0x");
        let is_digit =
            |byte: &&u8| if hexadecimal { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
        let length = self.text.iter().take_while(is_digit).count();
        let (digits, rest) = self.text.split_at(length);
        let suffix = rest.iter().take_while(|byte| matches!(byte, b'u' | b'U' | b'l' | b'L'));
        self.text = &rest[suffix.count()..];
        match hexadecimal {
            true => crate::fields::hexadecimal(digits),
            false => crate::fields::decimal(digits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<u64> {
        Expression { text: text.as_bytes(), depth: 0 }.evaluate()
    }

    #[test]
    fn expressions_of_kernels_are_evaluated() {
        assert_eq!(value("( unsigned long)(( gfp_t)((((1UL))) << (8)))"), Some(0x100));
        assert_eq!(
            value("(unsigned long)((( gfp_t)(0x400u|0x800u)) | ((gfp_t)0x40u))"),
            Some(0xc40)
        );
        assert_eq!(value("(6 | 1) & ~(4)"), Some(3));
        for bad in ["", "(", "1 +", "1 << 64", "1 << ", "()", "(x", &"(".repeat(100_000)] {
            assert_eq!(value(bad), None, "{bad:.20}");
        }
    }

    #[test]
    fn another_numbering_is_translated() {
        let print = "{ 0x400u | 0x40u, \"GFP_X\" }, {( unsigned long)(( gfp_t)0x200u), \
            \"__GFP_ZERO\"}, {( unsigned long)(( gfp_t)0x1000000u), \"__GFP_KSWAPD_RECLAIM\"}";
        let map = FlagMap::parse(print);
        let flag = |name| gfp::from_name(name).unwrap();
        let expected = flag("__GFP_ZERO") | flag("__GFP_KSWAPD_RECLAIM");
        assert_eq!(map.portable(0x0100_0200), Some(expected));
        assert_eq!(map.portable(0x1), Some(0));
        assert_eq!(map.portable(1 << 32), None);
    }

    #[test]
    fn without_a_list_the_numbering_is_that_of_6_12() {
        assert_eq!(FlagMap::parse("\"%s\", x"), FlagMap::IDENTITY);
        assert_eq!(FlagMap::IDENTITY.portable(0x14_0dca), Some(0x14_0dca));
    }
}
