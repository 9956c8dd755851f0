//! What stores ask of Windows. It is compiled in continuous integration and runs nowhere there.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::windows::fs::FileExt;

use super::{Access, Identity};

/// `ERROR_TOO_MANY_OPEN_FILES`.
const TOO_MANY: i32 = 4;

/// Whether the file is one that can be cached.
pub(super) fn can_be_cached(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.is_file())
}

pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let about = winapi_util::file::information(file)?;
    Ok(Identity::File(about.volume_serial_number(), about.file_index()))
}

/// Windows does not tell how a file was opened; what it does not allow fails later.
pub(super) fn access(file: &File) -> io::Result<Access> {
    let write = !file.metadata()?.permissions().readonly();
    Ok(Access { read: true, write, append: false, direct: false })
}

pub(super) fn read_at(
    file: &File,
    buffers: &mut [IoSliceMut<'_>],
    offset: u64,
) -> io::Result<usize> {
    let mut done = 0;
    for buffer in buffers {
        let read = file.seek_read(buffer, offset + done as u64)?;
        done += read;
        if read < buffer.len() {
            break;
        }
    }
    Ok(done)
}

pub(super) fn write_at(file: &File, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    for buffer in buffers {
        let written = file.seek_write(buffer, offset + done as u64)?;
        done += written;
        if written < buffer.len() {
            break;
        }
    }
    Ok(done)
}

pub(super) fn sync(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Whether an error says that too many files are open.
pub(super) fn is_too_many(error: &io::Error) -> bool {
    error.raw_os_error() == Some(TOO_MANY)
}

/// There is no direct I/O to refuse.
pub(super) fn is_no_direct(_: &io::Error) -> bool {
    false
}

/// No direct I/O.
pub(super) fn reopen_direct(_: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
