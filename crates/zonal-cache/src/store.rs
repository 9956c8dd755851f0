//! Stores: where a file's bytes lie outside the cache.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{FlockOperation, OFlags};
use zonal::PAGE_SIZE;

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
    Device(u64),
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
        let operation = match writable {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match retry(|| rustix::fs::flock(&*self.0, operation)) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
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
        let _ = rustix::fs::flock(&*self.0, FlockOperation::Unlock);
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
        use std::os::unix::fs::FileTypeExt;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(invalid("only regular files and block devices can be cached"));
        }
        let flags = rustix::fs::fcntl_getfl(&file)?;
        if flags.contains(OFlags::APPEND) {
            return Err(invalid("the file is open for appending; open it without"));
        }
        if flags.contains(OFlags::DIRECT) {
            return Err(invalid(
                "the file is open with O_DIRECT; open it without (Builder::direct)",
            ));
        }
        if flags & OFlags::ACCMODE == OFlags::WRONLY {
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
        match reopen_direct(file) {
            Err(error) if is_too_many(&error) => Err(error),
            reopened => Ok(reopened.ok()),
        }
    }

    pub(crate) fn identity(&self) -> io::Result<Identity> {
        use std::os::unix::fs::FileTypeExt;
        let metadata = self.file.metadata()?;
        Ok(match metadata.file_type().is_block_device() {
            true => Identity::Device(metadata.rdev()),
            false => Identity::File(metadata.dev(), metadata.ino()),
        })
    }

    /// Its lock, not yet taken.
    pub(crate) fn lock(&self) -> Lock {
        Lock(Arc::clone(&self.file))
    }

    /// Whether the file was opened for writing.
    pub(crate) fn is_writable(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.file);
        flags.is_ok_and(|flags| flags.intersects(OFlags::RDWR | OFlags::WRONLY))
    }

    /// Uses direct I/O for whole pages; else, or if that is refused for good, buffered I/O.
    fn transfer(
        &self,
        whole: bool,
        mut ask: impl FnMut(&File) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        if let Some(direct) = &self.direct
            && whole
            // Relaxed: a hint; a thread that misses it makes one more refused call.
            && self.direct_works.load(Relaxed)
        {
            match retry(|| ask(direct)) {
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                    self.direct_works.store(false, Relaxed);
                }
                done => return Ok(done?),
            }
        }
        Ok(retry(|| ask(&self.file))?)
    }
}

/// Whether an error says that too many files are open, in this process or at all.
pub(crate) fn is_too_many(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

fn reopen_direct(file: &File) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    OpenOptions::new()
        .read(!flags.contains(OFlags::WRONLY))
        .write(flags.intersects(OFlags::RDWR | OFlags::WRONLY))
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn retry<T>(mut ask: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match ask() {
            Err(rustix::io::Errno::INTR) => {}
            done => return done,
        }
    }
}

impl Store for FileStore {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        // Buffers are pages of the pool, so their addresses are aligned.
        let whole = offset.is_multiple_of(PAGE_SIZE as u64)
            && buffers.iter().all(|buffer| buffer.len() == PAGE_SIZE);
        self.transfer(whole, |file| rustix::io::preadv(file, buffers, offset))
    }
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let whole = offset.is_multiple_of(PAGE_SIZE as u64)
            && buffers.iter().all(|buffer| buffer.len() == PAGE_SIZE);
        self.transfer(whole, |file| rustix::io::pwritev(file, buffers, offset))
    }
    fn len(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        // Not `File::sync_all`, which retries after EINTR: EINTR may be the error of a write, and
        // Linux reports that once.
        Ok(rustix::fs::fsync(&*self.file)?)
    }
    fn is_direct(&self) -> bool {
        self.direct_works.load(Relaxed)
    }
}
