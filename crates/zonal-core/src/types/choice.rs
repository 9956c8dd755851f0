//! A choice between named values, as a policy has them: the trait, and the one macro that defines
//! such an enum with its names.

/// A choice between named values. The names are those of the command line.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every value of this build with its name, oldest first.
    const ALL: &'static [(&'static str, Self)];
    /// Names of the values that this build lacks: they take the feature `history`.
    const ABSENT: &'static [&'static str];

    /// The name of this value.
    fn name(self) -> &'static str;

    /// The value of this name, if the build has it.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

impl Choice for bool {
    const ALL: &'static [(&'static str, bool)] = &[("off", false), ("on", true)];
    const ABSENT: &'static [&'static str] = &[];

    fn name(self) -> &'static str {
        Self::ALL[usize::from(self)].0
    }
}

/// Defines an enum whose values have names, oldest first: `Value = "name"`. With `if "history"`
/// behind the name, builds have the value only with that feature.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $kind:ident {
            $( $(#[$value_meta:meta])* $value:ident = $name:literal $(if $feature:tt)? ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $kind {
            $( $(#[$value_meta])* $(#[cfg(feature = $feature)])? $value ),+
        }

        impl $crate::types::Choice for $kind {
            const ALL: &'static [(&'static str, $kind)] =
                &[$( $(#[cfg(feature = $feature)])? ($name, $kind::$value) ),+];
            const ABSENT: &'static [&'static str] =
                &[$( $( #[cfg(not(feature = $feature))] $name, )? )+];

            fn name(self) -> &'static str {
                match self {
                    $( $(#[cfg(feature = $feature)])? $kind::$value => $name, )+
                }
            }
        }
    };
}
pub(crate) use choice;
