//! As much of HTTP/1.1 as scrapers need, for clients that nobody trusts: one request on a
//! connection, a short head, no body, and a moment after which a connection is over.
//!
//! ```text
//!  serve ─ accepts ─► a thread for each connection, at most OPEN_MAX:
//!                       head (5 s) ─► Answer ─► written (10 s) ─► rest of input (1 s) ─► closed
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request, Status};

/// Connections at a time; for one more, the oldest is closed.
const OPEN_MAX: usize = 32;
/// A request's head has no more bytes than this.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Nor more lines.
const HEADERS_MAX: usize = 64;
/// Of what follows the head, so much is read before the connection is closed.
const REST_BYTES_MAX: u64 = 256 << 10;
/// The head is there after this.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// The answer is written after this.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// The client has closed after this.
const REST_WAIT: Duration = Duration::from_secs(1);
/// Between two attempts to accept where there is no room.
const PAUSE: Duration = Duration::from_millis(50);

const TEXT: &str = "text/plain; charset=utf-8";

/// What a client gets.
pub struct Answer {
    status: u16,
    kind: &'static str,
    text: String,
}

impl Answer {
    /// Text of a content type.
    pub fn new(status: u16, kind: &'static str, text: impl Into<String>) -> Answer {
        Answer { status, kind, text: text.into() }
    }

    fn head(&self) -> String {
        let (reason, more) = match self.status {
            200 => ("OK", ""),
            400 => ("Bad Request", ""),
            404 => ("Not Found", ""),
            405 => ("Method Not Allowed", "Allow: GET, HEAD\r\n"),
            431 => ("Request Header Fields Too Large", ""),
            _ => ("Service Unavailable", ""),
        };
        format!(
            "HTTP/1.1 {} {reason}\r\n{more}Content-Type: {}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.status,
            self.kind,
            self.text.len()
        )
    }
}

/// Answers clients for ever: `answer` says what is wanted.
pub fn serve(listener: &TcpListener, answer: impl Fn(&Wanted) -> Answer + Send + Sync + 'static) {
    let server =
        Arc::new(Server { answer, open: Mutex::new(VecDeque::new()), closed: Condvar::new() });
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let connection = Connection::new(Arc::clone(&server), stream);
                // Without a thread it is closed.
                let _ = thread::Builder::new().spawn(move || connection.talk());
            }
            Err(error) => match error.kind() {
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                // No descriptor is left: the oldest gives its own.
                _ => {
                    close_oldest(&server.open());
                    thread::sleep(PAUSE);
                }
            },
        }
    }
}

struct Server<F> {
    answer: F,
    /// The oldest first.
    open: Mutex<VecDeque<Arc<TcpStream>>>,
    closed: Condvar,
}

impl<F> Server<F> {
    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what its thread waits for.
fn close_oldest(open: &VecDeque<Arc<TcpStream>>) {
    if let Some(oldest) = open.front() {
        // It may be closed already.
        let _ = oldest.shutdown(Shutdown::Both);
    }
}

/// One that is counted.
struct Connection<F> {
    server: Arc<Server<F>>,
    stream: Arc<TcpStream>,
}

impl<F> Connection<F> {
    /// Waits until there is room, and makes it.
    fn new(server: Arc<Server<F>>, stream: TcpStream) -> Connection<F> {
        let stream = Arc::new(stream);
        let mut open = server.open();
        while open.len() >= OPEN_MAX {
            close_oldest(&open);
            let waited = server.closed.wait_timeout(open, PAUSE);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        open.push_back(Arc::clone(&stream));
        drop(open);
        Connection { server, stream }
    }
}

impl<F> Drop for Connection<F> {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.server.open().retain(|open| !Arc::ptr_eq(open, &self.stream));
        self.server.closed.notify_one();
    }
}

impl<F: Fn(&Wanted) -> Answer> Connection<F> {
    /// Reads a request and answers it. A client that goes or is too slow is no error.
    fn talk(&self) {
        if let Ok(Some(asked)) = self.asked() {
            let _ = self.tell(&asked);
        }
    }

    /// The request; `None`: the client has gone.
    fn asked(&self) -> io::Result<Option<Asked>> {
        let mut input = Timed::new(&self.stream, HEAD_WAIT);
        let (mut bytes, mut length) = ([0; HEAD_BYTES_MAX], 0);
        loop {
            match input.read(&mut bytes[length..]) {
                Ok(0) => return Ok(None),
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            match Asked::parse(&bytes[..length]) {
                Some(asked) => return Ok(Some(asked)),
                None if length == bytes.len() => return Ok(Some(Asked::TooMuch)),
                None => {}
            }
        }
    }

    fn tell(&self, asked: &Asked) -> io::Result<()> {
        let (answer, with_text) = match asked {
            Asked::Get(wanted) => ((self.server.answer)(wanted), true),
            Asked::Head(wanted) => ((self.server.answer)(wanted), false),
            Asked::Other => (Answer::new(405, TEXT, "expected GET or HEAD\n"), true),
            Asked::TooMuch => (Answer::new(431, TEXT, "expected a shorter head\n"), true),
            Asked::Nothing => (Answer::new(400, TEXT, "expected HTTP/1.1\n"), true),
        };
        let mut output = Timed::new(&self.stream, WRITE_WAIT);
        output.write_all(answer.head().as_bytes())?;
        if with_text {
            output.write_all(answer.text.as_bytes())?;
        }
        self.stream.shutdown(Shutdown::Write)?;
        // Input that is not read would reset the connection, and the client lose the answer.
        let rest = Timed::new(&self.stream, REST_WAIT);
        io::copy(&mut rest.take(REST_BYTES_MAX), &mut io::sink()).map(|_| ())
    }
}

/// What a client wants to have.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Path, without a query.
    pub path: String,
    /// Media types that it takes, from all its `Accept` headers; empty where it says nothing.
    accept: String,
}

impl Wanted {
    /// How much a client wants a media type of these two parts, from 0 to 1: the weight of the
    /// range that names it most exactly. Without a word about types it takes all.
    pub fn weight(&self, (group, kind): (&str, &str)) -> f64 {
        let whole = format!("{group}/{kind}");
        let ranges = self.accept.split(',').filter(|range| !range.trim().is_empty());
        let matching = ranges.filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let exactness = match parts.next()?.to_ascii_lowercase() {
                range if range == whole => 2,
                range if range.strip_suffix("/*") == Some(group) => 1,
                range if range == "*/*" => 0,
                _ => return None,
            };
            let weight = parts.find_map(|part| {
                part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
            });
            // What is no number takes nothing away.
            let weight = weight.and_then(|(_, weight)| weight.trim().parse::<f64>().ok());
            Some((exactness, weight.filter(|weight| weight.is_finite()).unwrap_or(1.0)))
        });
        let most = matching
            .max_by(|(exact, weight), (other, than)| exact.cmp(other).then(weight.total_cmp(than)));
        most.map_or(if self.accept.trim().is_empty() { 1.0 } else { 0.0 }, |(_, weight)| weight)
    }
}

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// This.
    Get(Wanted),
    /// The same, without its text.
    Head(Wanted),
    /// Something that is not done here.
    Other,
    /// A head that is too long.
    TooMuch,
    /// No HTTP.
    Nothing,
}

impl Asked {
    /// `None`: there is more to come.
    fn parse(bytes: &[u8]) -> Option<Asked> {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(Status::Partial) => return None,
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Some(Asked::TooMuch),
            Err(_) => return Some(Asked::Nothing),
        }
        let path = request.path.map_or("", path_of).to_owned();
        let accept =
            request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
        let accept: Vec<_> = accept.map(|header| String::from_utf8_lossy(header.value)).collect();
        let wanted = Wanted { path, accept: accept.join(",") };
        Some(match request.method {
            Some("GET") => Asked::Get(wanted),
            Some("HEAD") => Asked::Head(wanted),
            _ => Asked::Other,
        })
    }
}

/// The path of a request's target, which may be a whole address (RFC 9112, 3.2.2).
fn path_of(target: &str) -> &str {
    let after = target.split_once("://").filter(|(scheme, _)| {
        ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    });
    let path = match after.map(|(_, rest)| rest) {
        Some(rest) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => target,
    };
    match path.split('?').next() {
        None | Some("") => "/",
        Some(path) => path,
    }
}

/// A connection that reads and writes until a moment, however many small steps the client makes.
struct Timed<'s> {
    stream: &'s TcpStream,
    end: Instant,
}

impl Timed<'_> {
    fn new(stream: &TcpStream, wait: Duration) -> Timed<'_> {
        Timed { stream, end: Instant::now() + wait }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_in_parts_and_what_is_none_is_told() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n";
        for length in 0..text.len() {
            assert_eq!(Asked::parse(&text[..length]), None, "{length}");
        }
        let wanted = |path: &str| Wanted { path: path.to_owned(), accept: String::new() };
        assert_eq!(Asked::parse(text), Some(Asked::Get(wanted("/metrics"))));
        let head = b"HEAD / HTTP/1.0\r\nContent-Length: 18446744073709551615\r\n\r\n";
        assert_eq!(Asked::parse(head), Some(Asked::Head(wanted("/"))));
        let proxied = b"GET HTTP://[::1]:9917/metrics?x=/a HTTP/1.1\r\n\r\n";
        assert_eq!(Asked::parse(proxied), Some(Asked::Get(wanted("/metrics"))));
        let [bare, odd] = ["http://host", "/a://b"].map(path_of);
        assert_eq!((bare, odd), ("/", "/a://b"));
        assert_eq!(Asked::parse(b"POST / HTTP/1.1\r\n\r\nbody"), Some(Asked::Other));
        assert_eq!(Asked::parse(b"\x16\x03\x01\x02\x00\x01\x00"), Some(Asked::Nothing));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(Asked::parse(many.as_bytes()), Some(Asked::TooMuch));
    }

    #[test]
    fn the_range_that_names_a_type_most_exactly_weighs_it() {
        let weight = |accept: &[&str], kind| {
            let lines: String = accept.iter().map(|one| format!("aCCept: {one}\r\n")).collect();
            let text = format!("GET / HTTP/1.1\r\n{lines}\r\n");
            let Some(Asked::Get(wanted)) = Asked::parse(text.as_bytes()) else { panic!("{text}") };
            wanted.weight(kind)
        };
        let (open, plain) = (("application", "openmetrics-text"), ("text", "plain"));
        assert_eq!(weight(&[], open), 1.0, "without a word everything");
        assert_eq!((weight(&["text/*;q=0.3"], open), weight(&["text/*;q=0.3"], plain)), (0.0, 0.3));
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!((weight(&[prometheus], open), weight(&[prometheus], plain)), (0.5, 0.3));
        assert_eq!(weight(&["*/*", "Text/Plain; Q=0"], plain), 0.0, "over two lines");
        assert_eq!(weight(&["*/*;q=NaN"], plain), 1.0);
    }
}
