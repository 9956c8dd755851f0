//! The bytes of owned pages: what each owner has of them, written once.
//!
//! # Invariant
//! - **OWNS-1** an owner's pages lie side by side from `start` on, are handed out to it alone, and
//!   stay mapped while it lives. Every byte of a pool's memory is initialised: that of an anonymous
//!   mapping is zeroed by the kernel, for brought memory the program says so
//!   ([`Builder::memory`](crate::Builder::memory)).

/// Makes a type an owner of bytes: `$bytes` of them, from its field `start` on (OWNS-1). It may go
/// to other threads and be dropped there.
macro_rules! owns_bytes {
    ($owner:ty, $this:ident: $bytes:expr) => {
        // SAFETY: (1) pages are owned memory (OWNS-1), and any thread may use and free to a pool.
        unsafe impl Send for $owner {}
        // SAFETY: (1) a shared reference gives `&[u8]` only.
        unsafe impl Sync for $owner {}

        impl $owner {
            /// Bytes.
            #[inline]
            pub fn len(&self) -> usize {
                let $this = self;
                $bytes
            }
            /// Never: there is at least one page.
            #[inline]
            pub fn is_empty(&self) -> bool {
                false
            }
            /// First byte.
            #[inline]
            pub fn as_ptr(&self) -> *const u8 {
                self.start.as_ptr()
            }
            /// First byte.
            #[inline]
            pub fn as_mut_ptr(&mut self) -> *mut u8 {
                self.start.as_ptr()
            }
        }

        impl std::ops::Deref for $owner {
            type Target = [u8];
            #[inline]
            fn deref(&self) -> &[u8] {
                // SAFETY: (1) ours, mapped and initialised (OWNS-1).
                unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
            }
        }

        impl std::ops::DerefMut for $owner {
            #[inline]
            fn deref_mut(&mut self) -> &mut [u8] {
                // SAFETY: (1) as for `deref`, and `&mut self` excludes other readers.
                unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len()) }
            }
        }

        impl AsRef<[u8]> for $owner {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }
        impl AsMut<[u8]> for $owner {
            fn as_mut(&mut self) -> &mut [u8] {
                self
            }
        }
    };
}

pub(super) use owns_bytes;
