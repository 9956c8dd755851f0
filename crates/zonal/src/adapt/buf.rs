//! Bytes that grow within a block.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use crate::OwnedPages;

/// The front of an owned block: as many bytes as were written to it. It grows up to the end of the
/// block and never moves.
///
/// ```
/// use std::io::Write;
/// use zonal::adapt::PageBuf;
///
/// let pool = zonal::Pool::builder().size(64 << 20).build()?;
/// let mut answer = PageBuf::new(pool.alloc(zonal::Order::ZERO)?.into_owned());
/// write!(answer, "HTTP/1.1 {} OK\r\n", 200)?;
/// assert_eq!(&answer[..], b"HTTP/1.1 200 OK\r\n");
/// assert_eq!(answer.capacity(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PageBuf {
    pages: OwnedPages,
    /// Bytes written, at most the block's.
    len: usize,
}

/// The bytes do not fit in the rest of the block; nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// Bytes to be written.
    pub wanted: usize,
    /// Bytes that are left.
    pub left: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { wanted, left } = self;
        write!(f, "{wanted} bytes do not fit: {left} are left in the block; take a larger order")
    }
}

impl std::error::Error for Full {}

impl PageBuf {
    /// An empty buffer over a block.
    pub fn new(pages: OwnedPages) -> PageBuf {
        PageBuf { pages, len: 0 }
    }

    /// Bytes of the block.
    pub fn capacity(&self) -> usize {
        self.pages.len()
    }
    /// Bytes that can still be written.
    pub fn left(&self) -> usize {
        self.pages.len() - self.len
    }
    /// Forgets the bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
    /// Forgets all bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Writes all of `bytes` behind what is there.
    ///
    /// # Errors
    /// [`Full`], with nothing written.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let full = Full { wanted: bytes.len(), left: self.left() };
        self.spare_mut().get_mut(..bytes.len()).ok_or(full)?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// The rest of the block, to be read into; [`advance`](Self::advance) says how much was. Its
    /// bytes are what earlier owners left.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        &mut self.pages[self.len..]
    }

    /// Takes the next `bytes` bytes for written.
    ///
    /// # Errors
    /// [`Full`], with nothing changed.
    pub fn advance(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes > self.left() {
            return Err(Full { wanted: bytes, left: self.left() });
        }
        self.len += bytes;
        Ok(())
    }

    /// The block.
    pub fn into_pages(self) -> OwnedPages {
        self.pages
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages[..self.len]
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.len]
    }
}

impl AsRef<[u8]> for PageBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Writes as much as fits; nothing more fits at the end of the block (`Ok(0)`).
impl io::Write for PageBuf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.left());
        self.pages[self.len..self.len + fits].copy_from_slice(&bytes[..fits]);
        self.len += fits;
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
