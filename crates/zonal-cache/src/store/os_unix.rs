//! What stores ask of a Unix.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Access, Identity};

/// Whether the file is one that can be cached: a regular file or a block device.
pub(super) fn can_be_cached(file: &File) -> io::Result<bool> {
    let kind = file.metadata()?.file_type();
    Ok(kind.is_file() || kind.is_block_device())
}

pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok(match metadata.file_type().is_block_device() {
        true => Identity::Device(metadata.rdev()),
        false => Identity::File(metadata.dev(), metadata.ino()),
    })
}

/// How the file was opened.
pub(super) fn access(file: &File) -> io::Result<Access> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    let mode = flags & OFlags::ACCMODE;
    Ok(Access {
        read: mode != OFlags::WRONLY,
        write: mode == OFlags::RDWR || mode == OFlags::WRONLY,
        append: flags.contains(OFlags::APPEND),
        direct: direct::is_on(flags),
    })
}

pub(super) fn read_at(
    file: &File,
    buffers: &mut [IoSliceMut<'_>],
    offset: u64,
) -> io::Result<usize> {
    Ok(rustix::io::preadv(file, buffers, offset)?)
}

pub(super) fn write_at(file: &File, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, buffers, offset)?)
}

/// Not `File::sync_all`, which retries after EINTR: EINTR may be the error of a write, and Linux
/// reports that once.
pub(super) fn sync(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Whether an error says that too many files are open, in this process or at all.
pub(super) fn is_too_many(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

/// Whether an error says that the file system does no direct I/O.
pub(super) fn is_no_direct(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::OPNOTSUPP]
        .iter()
        .any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

pub(super) use direct::reopen as reopen_direct;

/// Direct I/O, by the names of open files in `/proc`.
#[cfg(target_os = "linux")]
mod direct {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    pub(in super::super) fn is_on(flags: OFlags) -> bool {
        flags.contains(OFlags::DIRECT)
    }

    /// Opens a file once more, for direct access.
    pub(in super::super) fn reopen(file: &File) -> io::Result<File> {
        let access = super::access(file)?;
        OpenOptions::new()
            .read(access.read)
            .write(access.write)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }
}

/// No direct I/O: an open file has no name to open it by.
#[cfg(not(target_os = "linux"))]
mod direct {
    use std::fs::File;
    use std::io;

    use rustix::fs::OFlags;

    pub(in super::super) fn is_on(_: OFlags) -> bool {
        false
    }

    pub(in super::super) fn reopen(_: &File) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
