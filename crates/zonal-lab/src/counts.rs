//! Sums and differences of sets of counts.

/// Sums and differences, field by field. A field may itself be a set of counts.
macro_rules! counts {
    ($name:ident: $($field:ident),*) => {
        impl std::ops::Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name {
                self.plus(&other)
            }
        }
        impl std::ops::Sub for $name {
            type Output = $name;
            fn sub(self, before: $name) -> $name {
                self.since(&before)
            }
        }
        impl $name {
            /// Counts since `before`.
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
