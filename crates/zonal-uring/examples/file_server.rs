//! A file server (HTTP/1.0, `GET` only): files are read into the pool's fixed buffers and sent out
//! of them. A connection has one page for its request and 64 KiB for the file, and gives both back
//! at its end.
//!
//! `cargo run --release -p zonal-uring --example file_server -- FOLDER 127.0.0.1:8000`

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use zonal::{Order, Pool};
use zonal_uring::{Buffer, Completion, Io, Options, Ring};

/// Pages of a connection's buffer for file contents.
const CHUNK_PAGES: usize = 16;
/// The token of the listener; connections count from 1.
const ACCEPT: u64 = 0;

/// What a connection waits for.
enum Step {
    /// More of the request, behind as many bytes.
    Request(usize),
    /// The rest of an answer's bytes in its buffer, then the file from an offset on.
    Send { rest: Range<usize>, file: Option<Arc<OwnedFd>>, offset: u64 },
    /// Bytes of the file at an offset.
    Read { file: Arc<OwnedFd>, offset: u64 },
}

struct Connection {
    socket: Arc<OwnedFd>,
    step: Step,
}

struct Server<'s> {
    ring: Ring,
    root: &'s Path,
    connections: HashMap<u64, Connection>,
}

/// Serves the files below `root`, for as many connections; `None`: for ever.
pub fn serve(
    listener: TcpListener,
    root: &Path,
    pool: &Pool,
    options: &Options,
    connections: Option<usize>,
) -> Result<(), Box<dyn Error>> {
    let mut ring = Ring::new(pool, options)?;
    let listener: Arc<OwnedFd> = Arc::new(listener.into());
    ring.accept(&listener, ACCEPT)?;
    let mut server = Server { ring, root, connections: HashMap::new() };
    let (mut accepted, mut ended) = (0, 0);
    while connections.is_none_or(|most| ended < most) {
        server.ring.wait(1)?;
        while let Some(done) = server.ring.next() {
            if done.token != ACCEPT {
                ended += usize::from(!server.goes_on(done)?);
                continue;
            }
            if !done.more {
                server.ring.accept(&listener, ACCEPT)?;
            }
            if let Some(socket) = done.accepted {
                accepted += 1;
                server.open(accepted, socket)?;
            }
        }
    }
    Ok(())
}

impl Server<'_> {
    fn open(&mut self, number: u64, socket: OwnedFd) -> Result<(), Box<dyn Error>> {
        let socket = Arc::new(socket);
        let page = self.ring.pool().alloc(Order::ZERO)?.into_owned();
        self.ring.read(&socket, page, Io::stream().token(number))?;
        self.connections.insert(number, Connection { socket, step: Step::Request(0) });
        Ok(())
    }

    /// The next step of a connection. `false`: it has ended.
    fn goes_on(&mut self, done: Completion) -> Result<bool, Box<dyn Error>> {
        let number = done.token;
        let Some(connection) = self.connections.remove(&number) else { return Ok(true) };
        let Connection { socket, step } = connection;
        let (Ok(bytes), Some(buffer)) = (done.result, done.buffer) else { return Ok(false) };
        let bytes = bytes as usize;
        let step = match step {
            Step::Request(_) if bytes == 0 => return Ok(false),
            Step::Request(before) => {
                let end = before + bytes;
                if end < buffer.len() && !buffer[..end].windows(4).any(|four| four == b"\r\n\r\n") {
                    let io = Io::stream().part(end..buffer.len()).token(number);
                    self.ring.read(&socket, buffer, io)?;
                    Step::Request(end)
                } else {
                    let (file, head) = answer(self.root, &buffer[..end]);
                    drop(buffer);
                    let mut chunk = self.ring.pool().ranges().alloc(CHUNK_PAGES)?.into_owned();
                    chunk[..head.len()].copy_from_slice(head.as_bytes());
                    self.send(number, &socket, chunk.into(), 0..head.len())?;
                    Step::Send { rest: 0..head.len(), file, offset: 0 }
                }
            }
            Step::Read { .. } if bytes == 0 => return Ok(false),
            Step::Read { file, offset } => {
                self.send(number, &socket, buffer, 0..bytes)?;
                let offset = offset + bytes as u64;
                Step::Send { rest: 0..bytes, file: Some(file), offset }
            }
            Step::Send { rest, file, offset } if bytes < rest.len() => {
                let rest = rest.start + bytes..rest.end;
                self.send(number, &socket, buffer, rest.clone())?;
                Step::Send { rest, file, offset }
            }
            Step::Send { file: None, .. } => return Ok(false),
            Step::Send { file: Some(file), offset, .. } => {
                self.ring.read(&file, buffer, Io::at(offset).token(number))?;
                Step::Read { file, offset }
            }
        };
        self.connections.insert(number, Connection { socket, step });
        Ok(true)
    }

    fn send(
        &mut self,
        number: u64,
        socket: &Arc<OwnedFd>,
        buffer: Buffer,
        part: Range<usize>,
    ) -> Result<(), Box<dyn Error>> {
        let io = Io::stream().part(part).token(number);
        self.ring.write(socket, buffer, io)?;
        Ok(())
    }
}

/// The file that a request asks for, and the head of the answer.
fn answer(root: &Path, request: &[u8]) -> (Option<Arc<OwnedFd>>, String) {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let found = std::str::from_utf8(line).ok().and_then(|line| {
        let path = line.strip_prefix("GET /")?.split(' ').next()?;
        let file = File::open(below(root, path)?).ok()?;
        let about = file.metadata().ok()?;
        about.is_file().then_some((file, about.len()))
    });
    let Some((file, bytes)) = found else {
        return (None, "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n".into());
    };
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    (Some(Arc::new(file.into())), head)
}

/// A path below the root, and nothing that leaves it by its name.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| root.join(path))
}

#[allow(dead_code, reason = "the tests run `serve`")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap_or_else(|| ".".into());
    let listener = TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("serves {root} at {}", listener.local_addr()?);
    let pool = Pool::builder().size(64 << 20).build()?;
    serve(listener, Path::new(&root), &pool, &Options::new(), None)?;
    Err(io::Error::other("the server ended").into())
}
