//! Stores: where a file's bytes lie outside the cache.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zonal::PAGE_SIZE;

#[cfg_attr(unix, path = "store/os_unix.rs")]
#[cfg_attr(windows, path = "store/os_windows.rs")]
mod os;

/// Storage of a cached file. The cache reads and writes whole pages, except at the end of the file.
///
/// A store must not use the cache that it is under. It may be called from inside an allocation of
/// the pool, so it must not take pages of that pool either.
pub trait Store: Send + Sync {
    /// Fills `buffers` from `offset` on. Returns the bytes read; 0 at the end.
    ///
    /// # Errors
    /// What the device says.
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;
    /// Writes `buffers` to `offset` and on. Returns the bytes written.
    ///
    /// # Errors
    /// What the device says.
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Bytes of the file.
    ///
    /// # Errors
    /// What the device says.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file, or makes it longer with zeroes.
    ///
    /// # Errors
    /// What the device says.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns when what was written is safe.
    ///
    /// # Errors
    /// What the device says. Data written since the last good sync may then be lost, even if it was
    /// read back meanwhile: the cache writes it again. Lengths must not be lost: a store that
    /// cannot keep them fails every later sync too.
    fn sync(&self) -> io::Result<()>;
    /// The file has no bytes, as far as the store knows.
    ///
    /// # Errors
    /// What the device says.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
    /// Whether reads and writes bypass the operating system's cache.
    fn is_direct(&self) -> bool {
        false
    }
}

/// Makes a store of each file that is opened ([`Builder::stores`](crate::Builder::stores)).
#[derive(Clone)]
pub(crate) struct MakeStore(pub(crate) Arc<dyn Fn(FileStore) -> Box<dyn Store> + Send + Sync>);

impl Default for MakeStore {
    fn default() -> MakeStore {
        MakeStore(Arc::new(|file| Box::new(file)))
    }
}

impl fmt::Debug for MakeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MakeStore").finish_non_exhaustive()
    }
}

/// Identity of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Identity {
    /// Device and inode.
    File(u64, u64),
    /// Device number of a block device, which may have several inodes.
    #[cfg_attr(windows, allow(dead_code, reason = "no file there is known as one"))]
    Device(u64),
}

/// How a file was opened.
#[derive(Clone, Copy, Debug)]
struct Access {
    read: bool,
    write: bool,
    /// For appending.
    append: bool,
    /// With `O_DIRECT`.
    direct: bool,
}

/// A lock on a file (`flock`), exclusive or shared.
#[derive(Debug)]
pub(crate) struct Lock(Arc<File>);

impl Lock {
    /// Takes the lock: exclusive if the file may be written. A file system without locks always
    /// succeeds.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`]: another holder.
    pub(crate) fn take(&self, writable: bool) -> io::Result<()> {
        let taken = retry(|| {
            let taken = if writable { self.0.try_lock() } else { self.0.try_lock_shared() };
            match taken {
                Err(TryLockError::Error(error)) => Err(error),
                Err(TryLockError::WouldBlock) => Ok(false),
                Ok(()) => Ok(true),
            }
        });
        match taken {
            Ok(false) => {
                let text = "another cache has the file, or a program has locked it (flock); a \
                            cache keeps a closed file for a while (CachedFile::close, \
                            Builder::closed_files); Builder::lock_files(false) opens it \
                            nevertheless";
                Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
            }
            _ => Ok(()),
        }
    }

    /// Releases it, also for a forked child that shares the descriptor.
    pub(crate) fn release(&self) {
        // Cannot fail for an open descriptor.
        let _ = self.0.unlock();
    }
}

/// A file of the operating system.
#[derive(Debug)]
pub struct FileStore {
    file: Arc<File>,
    /// The same file opened with `O_DIRECT`.
    direct: Option<File>,
    /// The file system took direct reads and writes so far.
    direct_works: AtomicBool,
}

impl FileStore {
    /// A store over an open file. With `direct`, the same file [opened](Self::direct_of) for direct
    /// I/O, reads and writes of whole pages bypass the operating system's cache.
    ///
    /// # Errors
    /// The file's metadata cannot be read; [`io::ErrorKind::InvalidInput`] if it is not a regular
    /// file or a block device, or is open in a way that a cache cannot use: for writing only, for
    /// appending (Linux writes at the end then, whatever the offset), or with `O_DIRECT`.
    pub fn new(file: File, direct: Option<File>) -> io::Result<FileStore> {
        if !os::can_be_cached(&file)? {
            return Err(invalid("only regular files and block devices can be cached"));
        }
        let access = os::access(&file)?;
        if access.append {
            return Err(invalid("the file is open for appending; open it without"));
        }
        if access.direct {
            return Err(invalid(
                "the file is open with O_DIRECT; open it without (Builder::direct)",
            ));
        }
        if !access.read {
            return Err(invalid("the file is open for writing only; open it for reading too"));
        }
        let direct_works = AtomicBool::new(direct.is_some());
        Ok(FileStore { file: Arc::new(file), direct, direct_works })
    }

    /// Opens a file once more, for direct access. `None`: its file system cannot do that. Some say
    /// so only at the first read or write.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn direct_of(file: &File) -> io::Result<Option<File>> {
        match os::reopen_direct(file) {
            Err(error) if is_too_many(&error) => Err(error),
            reopened => Ok(reopened.ok()),
        }
    }

    pub(crate) fn identity(&self) -> io::Result<Identity> {
        os::identity(&self.file)
    }

    /// Its lock, not yet taken.
    pub(crate) fn lock(&self) -> Lock {
        Lock(Arc::clone(&self.file))
    }

    /// Whether the file was opened for writing.
    pub(crate) fn is_writable(&self) -> bool {
        os::access(&self.file).is_ok_and(|access| access.write)
    }

    /// Uses direct I/O for whole pages; else, or if that is refused for good, buffered I/O.
    fn transfer(
        &self,
        whole: bool,
        mut ask: impl FnMut(&File) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if let Some(direct) = &self.direct
            && whole
            // Relaxed: a hint; a thread that misses it makes one more refused call.
            && self.direct_works.load(Relaxed)
        {
            match retry(|| ask(direct)) {
                Err(error) if os::is_no_direct(&error) => {
                    self.direct_works.store(false, Relaxed);
                }
                done => return done,
            }
        }
        retry(|| ask(&self.file))
    }
}

/// Whether an error says that too many files are open, in this process or at all.
pub(crate) fn is_too_many(error: &io::Error) -> bool {
    os::is_too_many(error)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn retry<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match ask() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Store for FileStore {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        // Buffers are pages of the pool, so their addresses are aligned.
        let whole = offset.is_multiple_of(PAGE_SIZE as u64)
            && buffers.iter().all(|buffer| buffer.len() == PAGE_SIZE);
        self.transfer(whole, |file| os::read_at(file, buffers, offset))
    }
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let whole = offset.is_multiple_of(PAGE_SIZE as u64)
            && buffers.iter().all(|buffer| buffer.len() == PAGE_SIZE);
        self.transfer(whole, |file| os::write_at(file, buffers, offset))
    }
    fn len(&self) -> io::Result<u64> {
        (&*self.file).seek(SeekFrom::End(0))
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        os::sync(&self.file)
    }
    fn is_direct(&self) -> bool {
        self.direct_works.load(Relaxed)
    }
}
