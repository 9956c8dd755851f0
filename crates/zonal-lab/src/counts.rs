//! Sums and differences of sets of counts.

/// Sums and differences, field by field.
macro_rules! counts {
    ($name:ident: $($field:ident),*) => {
        impl $name {
            /// What came since `before`.
            pub fn since(&self, before: &$name) -> $name {
                $name { $($field: self.$field - before.$field),* }
            }
            /// The sum of two.
            pub fn plus(&self, other: &$name) -> $name {
                $name { $($field: self.$field + other.$field),* }
            }
        }
    };
}
