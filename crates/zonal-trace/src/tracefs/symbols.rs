//! The one address of the kernel that a trace of pages needs: that of `vmstat_update`.
//!
//! `workqueue_execute_start` tells the function that a worker runs as an address. Which address is
//! the statistics worker's stands in `/proc/kallsyms`, if the recorder kept it and was allowed to
//! see addresses; otherwise they are all zero.

/// Where `vmstat_update` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbols {
    /// At this address.
    At(u64),
    /// Unknown, and the recorder let only `vmstat_update` through.
    OnlyVmstatUpdate,
    /// Unknown.
    Unknown,
}

impl Symbols {
    /// Looks through the text of `/proc/kallsyms`: lines of `ADDRESS TYPE NAME [MODULE]`.
    pub(crate) fn parse(text: &[u8]) -> Option<Symbols> {
        text.split(|&byte| byte == b'\n').find_map(|line| {
            let mut words = line.split(|&byte| byte == b' ' || byte == b'\t');
            let address = crate::fields::hexadecimal(words.next()?)?;
            let found = words.nth(1)? == b"vmstat_update" && address != 0;
            found.then_some(Symbols::At(address))
        })
    }

    /// Whether the function at `address` is `vmstat_update`.
    pub(crate) fn is_vmstat_update(self, address: u64) -> bool {
        match self {
            Symbols::At(known) => known == address,
            Symbols::OnlyVmstatUpdate => true,
            Symbols::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_unless_it_is_hidden() {
        let text = b"ffffffff81000000 T _text\nffffffff81234560 t vmstat_update\n\nx y\n";
        let symbols = Symbols::parse(text).unwrap();
        assert!(symbols.is_vmstat_update(0xffff_ffff_8123_4560));
        assert!(!symbols.is_vmstat_update(0));
        assert_eq!(Symbols::parse(b"0000000000000000 t vmstat_update\n"), None);
        assert_eq!(Symbols::parse(b"ffffffff81234560 t vmstat_update_x\n"), None);
    }
}
