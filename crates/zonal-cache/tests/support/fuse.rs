//! A file system of one file, `file`, whose bytes are a [`DeviceStore`]'s: what the kernel asks of
//! a failing device, and what it tells of it, is then the kernel's own.
//!
//! The protocol is that of `/dev/fuse` (Linux `include/uapi/linux/fuse.h`), version 7.31, as far as
//! one file needs it. All fields are of this machine's byte order.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread::JoinHandle;

use tempfile::TempDir;
use zonal_cache::Store;

use super::device::DeviceStore;

/// Numbers of the protocol.
mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
}
const INIT_BIG_WRITES: u32 = 1 << 5;
const INIT_WRITEBACK_CACHE: u32 = 1 << 16;
const OPEN_DIRECT_IO: u32 = 1;
const ATTR_SIZE: u32 = 1 << 3;
const IN_HEADER: usize = 40;
const MAX_WRITE: u32 = 1 << 17;
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// How the kernel treats the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each write of the program is one to the device.
    Through,
    /// Writes go to the kernel's cache, and to the device when it likes.
    WriteBack,
}

/// The mounted file system.
pub struct Mount {
    dir: TempDir,
    server: Option<JoinHandle<()>>,
}

impl Mount {
    /// Mounts it. `Err`: this machine does not let us, and why.
    pub fn new(store: DeviceStore, mode: Mode) -> io::Result<Mount> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let dir = tempfile::tempdir()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let [path, data, kind] = [dir.path().as_os_str().as_bytes(), data.as_bytes(), b"fuse"]
            .map(|text| CString::new(text).unwrap());
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: (1) four strings that end with a zero byte, and live until the call returns.
        let mounted = unsafe {
            libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
        };
        if mounted != 0 {
            return Err(io::Error::last_os_error());
        }
        let server = Some(std::thread::spawn(move || serve(device, &store, mode)));
        Ok(Mount { dir, server })
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("file")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = CString::new(self.dir.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: (1) a string that ends with a zero byte.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        let _ = self.server.take().map(JoinHandle::join);
    }
}

/// An answer to be.
#[derive(Default)]
struct Reply(Vec<u8>);

impl Reply {
    fn u32(mut self, value: u32) -> Reply {
        self.0.extend(value.to_ne_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Reply {
        self.0.extend(value.to_ne_bytes());
        self
    }
    /// What the file, or its directory, is. Never kept: asked for each time.
    fn attr(self, node: u64, len: u64) -> Reply {
        let (mode, links) = if node == ROOT { (0o040_755, 2) } else { (0o100_644, 1) };
        let times = self.u64(node).u64(len).u64(len.div_ceil(512)).u64(0).u64(0).u64(0);
        let nanos = times.u32(0).u32(0).u32(0);
        nanos.u32(mode).u32(links).u32(0).u32(0).u32(0).u32(4096).u32(0)
    }
}

fn u32_at(request: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(request[at..at + 4].try_into().unwrap())
}
fn u64_at(request: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(request[at..at + 8].try_into().unwrap())
}

/// Answers the kernel until the file system is unmounted.
fn serve(mut device: File, store: &DeviceStore, mode: Mode) {
    let mut buffer = vec![0; MAX_WRITE as usize + (1 << 16)];
    loop {
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return,
            // A request that was taken back, or a signal.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                continue;
            }
            Err(error) => panic!("/dev/fuse: {error}"),
        };
        let request = &buffer[..len];
        let unique = u64_at(request, 8);
        let Some(answer) = answer(request, store, mode) else { continue };
        let (error, body) = match answer {
            Ok(reply) => (0, reply.0),
            Err(error) => (-error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
        };
        let mut out = Vec::with_capacity(16 + body.len());
        out.extend((16 + body.len() as u32).to_ne_bytes());
        out.extend(error.to_ne_bytes());
        out.extend(unique.to_ne_bytes());
        out.extend(body);
        // One that was interrupted wants no answer.
        let _ = device.write(&out);
    }
}

/// The answer to a request; `None` to those that want none.
fn answer(request: &[u8], store: &DeviceStore, mode: Mode) -> Option<io::Result<Reply>> {
    let (opcode, node) = (u32_at(request, 4), u64_at(request, 16));
    let body = &request[IN_HEADER..];
    let len = || store.seen().len() as u64;
    let reply = Reply::default();
    Some(match opcode {
        op::FORGET | op::BATCH_FORGET | op::INTERRUPT | op::DESTROY => return None,
        op::INIT => {
            let cache = if mode == Mode::WriteBack { INIT_WRITEBACK_CACHE } else { 0 };
            let flags = u32_at(body, 12) & (INIT_BIG_WRITES | cache);
            let first = reply.u32(7).u32(31).u32(u32_at(body, 8)).u32(flags);
            // Background requests, the largest write, the grain of times; nothing else.
            let rest = first.u32(12 | 9 << 16).u32(MAX_WRITE).u32(1);
            Ok((0..9).fold(rest, |reply, _| reply.u32(0)))
        }
        op::LOOKUP if body.starts_with(b"file\0") => {
            Ok(reply.u64(FILE).u64(0).u64(0).u64(0).u64(0).attr(FILE, len()))
        }
        op::LOOKUP => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        op::GETATTR => Ok(reply.u64(0).u64(0).attr(node, len())),
        op::SETATTR => {
            let cut = u32_at(body, 0) & ATTR_SIZE != 0;
            let set = if cut { store.set_len(u64_at(body, 16)) } else { Ok(()) };
            set.map(|()| reply.u64(0).u64(0).attr(node, len()))
        }
        op::OPEN => {
            let direct = if mode == Mode::Through { OPEN_DIRECT_IO } else { 0 };
            Ok(reply.u64(0).u32(direct).u32(0))
        }
        op::READ => {
            let mut bytes = vec![0; u32_at(body, 16) as usize];
            let read = store.read_at(&mut [IoSliceMut::new(&mut bytes)], u64_at(body, 8));
            read.map(|read| {
                bytes.truncate(read);
                Reply(bytes)
            })
        }
        op::WRITE => {
            let bytes = &body[40..40 + u32_at(body, 16) as usize];
            let written = store.write_at(&[IoSlice::new(bytes)], u64_at(body, 8));
            written.map(|written| reply.u32(written as u32).u32(0))
        }
        op::FSYNC => store.sync().map(|()| reply),
        op::FLUSH | op::RELEASE => Ok(reply),
        _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    })
}
