//! A kernel's release, as far as rules change with it: `6.12.117+deb12-amd64` is 6.12.

use std::fmt;

/// The first two numbers of a kernel's release; 6.2 is before 6.12.
///
/// ```
/// use zonal_text::release::KernelRelease;
///
/// let release = KernelRelease::parse("6.12.117+deb12-amd64");
/// assert_eq!(release, Some(KernelRelease(6, 12)));
/// assert!(release > Some(KernelRelease(6, 2)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRelease(pub u32, pub u32);

impl KernelRelease {
    /// The release at the start of `text`, such as `6.12.117+deb12-amd64`.
    pub fn parse(text: &str) -> Option<KernelRelease> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse().ok();
        Some(KernelRelease(number()?, number()?))
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_ordered() {
        for (text, release) in [
            ("6.1.0-56-amd64", Some(KernelRelease(6, 1))),
            ("6.12.117+deb12-amd64", Some(KernelRelease(6, 12))),
            ("6.18.44-fc-v657", Some(KernelRelease(6, 18))),
            ("7.0-rc1", Some(KernelRelease(7, 0))),
            ("7.2", Some(KernelRelease(7, 2))),
            ("6", None),
            ("v6.1", None),
            ("strange", None),
            ("", None),
        ] {
            assert_eq!(KernelRelease::parse(text), release, "{text}");
        }
        assert!(KernelRelease(6, 12) > KernelRelease(6, 2));
        assert!(KernelRelease(5, 99) < KernelRelease(6, 0));
    }
}
