//! An echo server: bytes arrive in pages of a pool that the kernel takes by itself, and are sent
//! back out of the same pages, which then go back to the kernel. A connection that waits holds no
//! page, and no byte is copied in this process.
//!
//! `cargo run --release -p zonal-uring --example echo_server -- 127.0.0.1:7777`

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zonal::{Order, Pool};
use zonal_uring::{Buffer, Completion, Io, Options, Ring};

/// The group of provided pages.
const GROUP: u16 = 0;

/// What a token is of, in its low bits; the connection's number above.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

struct Connection {
    socket: Arc<OwnedFd>,
    /// What arrived and was not sent yet, in order, without what is being sent.
    queue: VecDeque<(Buffer, Range<usize>)>,
    /// The bytes of its page that are being sent.
    sending: Range<usize>,
    is_sending: bool,
    is_receiving: bool,
    has_ended: bool,
}

/// How the server works.
pub struct Settings {
    /// Pages that the kernel may take at a time, a power of two.
    pub pages: u16,
    /// Ends after as many connections; `None`: never.
    pub connections: Option<usize>,
}

struct Server {
    ring: Ring,
    connections: HashMap<u64, Connection>,
    /// Connections that wait for a page to come back.
    hungry: Vec<u64>,
    bytes: u64,
}

/// Serves a listener. Returns the bytes echoed.
pub fn serve(
    listener: TcpListener,
    pool: &Pool,
    options: &Options,
    settings: &Settings,
) -> Result<u64, Box<dyn Error>> {
    let mut ring = Ring::new(pool, options)?;
    ring.provide(GROUP, settings.pages, Order::ZERO)?;
    let listener: Arc<OwnedFd> = Arc::new(listener.into());
    ring.accept(&listener, ACCEPT)?;
    let (mut accepted, mut ended) = (0, 0);
    let (connections, hungry) = (HashMap::new(), Vec::new());
    let mut server = Server { ring, connections, hungry, bytes: 0 };
    while settings.connections.is_none_or(|most| ended < most) {
        server.ring.wait(1)?;
        while let Some(done) = server.ring.next() {
            let number = done.token >> 2;
            match done.token & 3 {
                ACCEPT => {
                    if !done.more {
                        server.ring.accept(&listener, ACCEPT)?;
                    }
                    if let Some(socket) = done.accepted {
                        accepted += 1;
                        server.open(accepted, socket)?;
                    }
                }
                RECEIVE => server.received(number, done)?,
                _ => server.sent(number, done)?,
            }
            ended += usize::from(server.close_if_done(number));
        }
        server.feed()?;
    }
    Ok(server.bytes)
}

impl Server {
    fn open(&mut self, number: u64, socket: OwnedFd) -> Result<(), Box<dyn Error>> {
        let connection = Connection {
            socket: Arc::new(socket),
            queue: VecDeque::new(),
            sending: 0..0,
            is_sending: false,
            is_receiving: false,
            has_ended: false,
        };
        self.connections.insert(number, connection);
        self.receive(number)
    }

    fn receive(&mut self, number: u64) -> Result<(), Box<dyn Error>> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        self.ring.receive(&connection.socket, GROUP, number << 2 | RECEIVE)?;
        connection.is_receiving = true;
        Ok(())
    }

    fn received(&mut self, number: u64, done: Completion) -> Result<(), Box<dyn Error>> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        connection.is_receiving = done.more;
        match (done.result, done.buffer) {
            (Ok(bytes), Some(page)) if bytes > 0 => {
                connection.queue.push_back((page, 0..bytes as usize));
            }
            // No page was left: once one comes back.
            (Err(error), _) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.hungry.push(number);
                return Ok(());
            }
            (_, page) => {
                connection.has_ended = true;
                page.into_iter().try_for_each(|page| self.ring.give_back(GROUP, page))?;
            }
        }
        let goes_on = done.more || self.connections[&number].has_ended;
        if !goes_on {
            self.receive(number)?;
        }
        self.send(number)
    }

    /// Sends the first page of the queue, if nothing is being sent.
    fn send(&mut self, number: u64) -> Result<(), Box<dyn Error>> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        if !connection.is_sending
            && let Some((page, part)) = connection.queue.pop_front()
        {
            let io = Io::stream().part(part.clone()).token(number << 2 | SEND);
            self.ring.write(&connection.socket, page, io)?;
            (connection.is_sending, connection.sending) = (true, part);
        }
        Ok(())
    }

    fn sent(&mut self, number: u64, done: Completion) -> Result<(), Box<dyn Error>> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        connection.is_sending = false;
        let mut unused: Vec<Buffer> = Vec::new();
        match done.result {
            Ok(sent) => {
                self.bytes += u64::from(sent);
                let left = connection.sending.start + sent as usize..connection.sending.end;
                match done.buffer {
                    Some(page) if !left.is_empty() => connection.queue.push_front((page, left)),
                    page => unused.extend(page),
                }
            }
            // The client has gone: what is left goes nowhere.
            Err(_) => {
                connection.has_ended = true;
                unused.extend(connection.queue.drain(..).map(|(page, _)| page).chain(done.buffer));
            }
        }
        unused.into_iter().try_for_each(|page| self.ring.give_back(GROUP, page))?;
        self.send(number)
    }

    /// Lets connections that waited for pages go on, if some have come back.
    fn feed(&mut self) -> Result<(), Box<dyn Error>> {
        if self.ring.provided(GROUP)? == 0 {
            return Ok(());
        }
        for number in std::mem::take(&mut self.hungry) {
            self.receive(number)?;
        }
        Ok(())
    }

    fn close_if_done(&mut self, number: u64) -> bool {
        let is_done = self.connections.get(&number).is_some_and(|connection| {
            let is_idle = !connection.is_sending && !connection.is_receiving;
            connection.has_ended && is_idle && connection.queue.is_empty()
        });
        if is_done {
            self.connections.remove(&number);
        }
        is_done
    }
}

#[allow(dead_code, reason = "the tests run `serve`")]
fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address)?;
    println!("echoes at {}", listener.local_addr()?);
    let pool = Pool::builder().size(64 << 20).build()?;
    let settings = Settings { pages: 256, connections: None };
    serve(listener, &pool, &Options::new(), &settings)?;
    Err(io::Error::other("the server ended").into())
}
