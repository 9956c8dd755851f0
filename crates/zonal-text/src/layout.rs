//! Which kernel's form a text has.

use core::fmt;
#[cfg(feature = "std")]
use core::str::FromStr;

/// The form that kernels of a range of releases print.
///
/// Each value stands for its release and all later ones below the next value. Forms are ordered:
/// `Layout::Linux6_12 < Layout::Linux6_14`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Layout {
    /// 6.1 to 6.11: no `promo` mark in `zoneinfo`.
    Linux6_1,
    /// 6.12 and 6.13.
    #[default]
    Linux6_12,
    /// 6.14 to 6.19: the values of a pageset in one column, with `high_min` and `high_max`.
    Linux6_14,
    /// 7.0 and later: `reserved_highatomic` and `free_highatomic`, reclaim counted per node.
    Linux7,
}

/// The name of a layout that [`Layout::ALL`] does not have.
#[cfg(feature = "std")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownLayout {
    found: String,
}

impl Layout {
    /// All layouts, oldest first.
    pub const ALL: [Layout; 4] =
        [Layout::Linux6_1, Layout::Linux6_12, Layout::Linux6_14, Layout::Linux7];

    /// The first release that prints this form.
    pub fn release(self) -> &'static str {
        match self {
            Layout::Linux6_1 => "6.1",
            Layout::Linux6_12 => "6.12",
            Layout::Linux6_14 => "6.14",
            Layout::Linux7 => "7.0",
        }
    }

    /// The form of a kernel whose release begins with two numbers, such as `6.12.94-amd64`; `None`
    /// for releases before 6.1, and for other texts.
    pub fn of_release(release: &str) -> Option<Layout> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        let version = (number()?, number()?);
        let layout = match version {
            (..6, _) | (6, 0) => return None,
            (6, ..12) => Layout::Linux6_1,
            (6, ..14) => Layout::Linux6_12,
            (6, _) => Layout::Linux6_14,
            (7.., _) => Layout::Linux7,
        };
        Some(layout)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.release())
    }
}

#[cfg(feature = "std")]
impl FromStr for Layout {
    type Err = UnknownLayout;

    /// The layout of a release, such as `6.14` or `6.18.3`.
    fn from_str(text: &str) -> Result<Self, UnknownLayout> {
        Layout::of_release(text).ok_or_else(|| UnknownLayout { found: text.to_owned() })
    }
}

#[cfg(feature = "std")]
impl fmt::Display for UnknownLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = crate::error::excerpt(&self.found);
        write!(f, "unknown layout: expected a kernel release from 6.1 on, found `{found}`")
    }
}

#[cfg(feature = "std")]
impl std::error::Error for UnknownLayout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_from_6_1_on_has_a_layout() {
        for (release, layout) in [
            ("6.1.0-56-amd64", Layout::Linux6_1),
            ("6.11", Layout::Linux6_1),
            ("6.12.117+deb12-amd64", Layout::Linux6_12),
            ("6.13.2", Layout::Linux6_12),
            ("6.14.0-rc1", Layout::Linux6_14),
            ("6.19", Layout::Linux6_14),
            ("7.2", Layout::Linux7),
            ("8.0", Layout::Linux7),
        ] {
            assert_eq!(Layout::of_release(release), Some(layout), "{release}");
        }
        for release in ["", "6", "5.15.3", "6.0", "six.one", "v6.1", "6.99999999999"] {
            assert_eq!(Layout::of_release(release), None, "{release}");
        }
    }

    #[test]
    fn a_layout_is_read_back_from_its_name() {
        for layout in Layout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        let error = "5.4".parse::<Layout>().unwrap_err().to_string();
        assert!(error.contains("from 6.1 on, found `5.4`"), "{error}");
    }
}
