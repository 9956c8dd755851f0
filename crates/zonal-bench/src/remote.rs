//! A subject in a separate process, driven by lines of JSON over its stdin and stdout.
//!
//! The C and C++ peers run this way: an allocator brings constructors, signal handlers, its own
//! idea of the heap and sometimes an environment variable, none of which may touch the others. The
//! child runs this crate's loops in this crate's crew ([`serve`]); the parent only says which burst
//! comes next, so peers take part in the same interleaved rounds as everyone else (FAIR-3). A child
//! sleeps in `read` while others are measured.
//!
//! ```text
//!   parent                                 child
//!   {"burst":{"cell":…,"iterations":…}} ->
//!                                       <- {"burst":{"ns_per_op":…,"wall_ns":…}} or {"error":"…"}
//! ```
//! The first line a child writes is `{"ready":"name"}` or `{"error":"why it cannot run here"}`.

use crate::cell::Cell;
use crate::error::BenchError;
use crate::runner::{Burst, Latency, Local, Runner};
use crate::subject::{Subject, Waiting};
use crate::{Cpus, Crew};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A child that has not answered for this long is stopped. The longest single burst is a few
/// hundred milliseconds; this is for hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Supports { cell: Cell },
    Burst { cell: Cell, iterations: u64, held: u32 },
    Latency { cell: Cell, iterations: u64 },
    Check { cell: Cell },
    Waiting,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready(String),
    Supported,
    Unsupported(String),
    Burst(Burst),
    Latency(Latency),
    Hash(u64),
    Waiting(Option<Waiting>),
    Wrong(String),
    Error(String),
}

/// How often a child that ended is started again.
const RESTARTS: u32 = 3;

/// A subject whose loops run in a child process. One that ends or does not answer leaves the cell,
/// and is started again for the next.
pub struct Remote {
    name: String,
    command: Command,
    process: Process,
    restarts: u32,
}

/// A child, and the way to talk to it.
struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    /// It has ended, or was stopped.
    gone: bool,
}

impl Remote {
    /// Starts `command`, which must end up in [`serve`], and waits until it is ready. `name` is the
    /// subject's name in rows.
    ///
    /// # Errors
    /// If it cannot be started, or says why it cannot run here, or ends.
    pub fn start(name: &str, mut command: Command) -> Result<Remote, BenchError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let process = Process::start(name, &mut command)?;
        let mut remote = Remote { name: name.into(), command, process, restarts: 0 };
        remote.introduced()?;
        Ok(remote)
    }

    fn introduced(&mut self) -> Result<(), BenchError> {
        let what = match self.answer()? {
            Answer::Ready(_) => return Ok(()),
            Answer::Error(why) => format!("cannot run here: {why}"),
            _ => "did not introduce itself".into(),
        };
        self.process.gone = true;
        Err(BenchError::Child { subject: self.name.clone(), what })
    }

    fn gone(&mut self, what: &str) -> BenchError {
        self.process.gone = true;
        // Already ended or about to be: both calls only tidy up.
        let child = &mut self.process.child;
        let _ = child.kill();
        let status = child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        BenchError::Child { subject: self.name.clone(), what: format!("{what} ({status})") }
    }

    fn answer(&mut self) -> Result<Answer, BenchError> {
        match self.process.answers.recv_timeout(ANSWER_TIMEOUT) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|e| self.gone(&format!("answered {line:?}: {e}"))),
            Err(RecvTimeoutError::Timeout) => Err(self.gone("did not answer and was stopped")),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone("ended")),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, BenchError> {
        if self.process.gone {
            self.restart()?;
        }
        let mut line = serde_json::to_string(request)
            .map_err(|e| self.gone(&format!("cannot be asked: {e}")))?;
        line.push('\n');
        if self.process.requests.write_all(line.as_bytes()).is_err() {
            return Err(self.gone("ended"));
        }
        match self.answer()? {
            Answer::Wrong(what) => Err(BenchError::Wrong(what)),
            Answer::Error(what) => {
                Err(BenchError::Child { subject: self.name.clone(), what: format!("says: {what}") })
            }
            answer => Ok(answer),
        }
    }

    fn restart(&mut self) -> Result<(), BenchError> {
        if self.restarts == RESTARTS {
            let what = format!("ended {} times and is not started again", RESTARTS + 1);
            return Err(BenchError::Child { subject: self.name.clone(), what });
        }
        self.restarts += 1;
        self.process = Process::start(&self.name, &mut self.command)?;
        self.introduced()
    }
}

impl Process {
    fn start(name: &str, command: &mut Command) -> Result<Process, BenchError> {
        let gone = |what: String| BenchError::Child { subject: name.into(), what };
        let mut child = command.spawn().map_err(|e| gone(format!("did not start: {e}")))?;
        let requests = child.stdin.take().ok_or_else(|| gone("has no stdin".into()))?;
        let output = child.stdout.take().ok_or_else(|| gone("has no stdout".into()))?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, requests, answers, gone: false })
    }
}

impl Runner for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn supports(&mut self, cell: &Cell) -> Result<(), String> {
        match self.ask(&Request::Supports { cell: *cell }) {
            Ok(Answer::Supported) => Ok(()),
            Ok(Answer::Unsupported(why)) => Err(why),
            Ok(_) => Err("its process answered something else".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn burst(&mut self, cell: &Cell, iterations: u64, held: u32) -> Result<Burst, BenchError> {
        match self.ask(&Request::Burst { cell: *cell, iterations, held })? {
            Answer::Burst(burst) => Ok(burst),
            _ => Err(self.gone("answered something else")),
        }
    }

    fn latency(&mut self, cell: &Cell, iterations: u64) -> Result<Latency, BenchError> {
        match self.ask(&Request::Latency { cell: *cell, iterations })? {
            Answer::Latency(latency) => Ok(latency),
            _ => Err(self.gone("answered something else")),
        }
    }

    fn waiting(&mut self) -> Result<Option<Waiting>, BenchError> {
        match self.ask(&Request::Waiting)? {
            Answer::Waiting(waiting) => Ok(waiting),
            _ => Err(self.gone("answered something else")),
        }
    }

    fn check(&mut self, cell: &Cell) -> Result<u64, BenchError> {
        match self.ask(&Request::Check { cell: *cell })? {
            Answer::Hash(hash) => Ok(hash),
            _ => Err(self.gone("answered something else")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child may have ended by itself; then both calls fail and nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole of a child's `main`: makes the subject from the name in the first argument (the one
/// that rows will carry) and serves it.
///
/// # Errors
/// If stdin or stdout fail.
pub fn serve_subject<S: Subject>(
    make: impl FnOnce(&str) -> Result<S, String>,
) -> std::io::Result<()> {
    // Libraries print: from here on stdout is redirected to stderr, and only answers use the real
    // stdout.
    let answers = File::from(rustix::io::dup(rustix::stdio::stdout())?);
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    let crew = Arc::new(Crew::new(Cpus::of_process()));
    let name = std::env::args().nth(1).unwrap_or_default();
    let runner = make(&name).map(|subject| Local::boxed(subject, &crew));
    serve(runner, std::io::stdin().lock(), answers)
}

/// The child's side: answers `requests` until they end. Give it the runner, or the reason why the
/// subject cannot run here.
///
/// # Errors
/// If reading or writing fails.
pub fn serve(
    runner: Result<Box<dyn Runner>, String>,
    requests: impl BufRead,
    mut answers: impl Write,
) -> std::io::Result<()> {
    let mut runner = match runner {
        Ok(runner) => runner,
        Err(why) => return tell(&mut answers, &Answer::Error(why)),
    };
    tell(&mut answers, &Answer::Ready(runner.name().into()))?;
    for line in requests.lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(request) => respond(&mut *runner, &request),
            Err(error) => Answer::Error(format!("unknown request: {error}")),
        };
        tell(&mut answers, &answer)?;
    }
    Ok(())
}

fn respond(runner: &mut dyn Runner, request: &Request) -> Answer {
    let failed = |error: BenchError| match error {
        BenchError::Wrong(what) => Answer::Wrong(what),
        error => Answer::Error(error.to_string()),
    };
    match *request {
        Request::Supports { cell } => {
            runner.supports(&cell).map_or_else(Answer::Unsupported, |()| Answer::Supported)
        }
        Request::Burst { cell, iterations, held } => {
            runner.burst(&cell, iterations, held).map_or_else(failed, Answer::Burst)
        }
        Request::Latency { cell, iterations } => {
            runner.latency(&cell, iterations).map_or_else(failed, Answer::Latency)
        }
        Request::Check { cell } => runner.check(&cell).map_or_else(failed, Answer::Hash),
        Request::Waiting => runner.waiting().map_or_else(failed, Answer::Waiting),
    }
}

fn tell(answers: &mut impl Write, answer: &Answer) -> std::io::Result<()> {
    let line = serde_json::to_string(answer)?;
    writeln!(answers, "{line}")?;
    answers.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::ThreadVec;
    use crate::{Bench, Sizing};

    #[test]
    fn a_request_is_answered_in_one_line() {
        let cpus = Cpus::of_process();
        let subject = ThreadVec::new(Sizing::of(&cpus)).unwrap();
        let runner = Local::boxed(subject, &Arc::new(Crew::new(cpus)));
        let cell = Cell { bench: Bench::Pair, threads: 1, pinned: true, order: 0, touched: true };
        let mut requests = String::new();
        for request in [
            Request::Supports { cell },
            Request::Burst { cell, iterations: 10, held: 1 },
            Request::Check { cell },
        ] {
            requests += &serde_json::to_string(&request).unwrap();
            requests.push('\n');
        }
        requests += "nonsense\n";
        let mut answers = Vec::new();
        serve(Ok(runner), requests.as_bytes(), &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let lines: Vec<&str> = answers.lines().collect();
        assert_eq!(lines.len(), 5, "{answers}");
        assert_eq!(lines[0], r#"{"ready":"thread-vec"}"#);
        assert_eq!(lines[1], r#""supported""#);
        assert!(lines[2].starts_with(r#"{"burst":{"ns_per_op":"#), "{answers}");
        assert!(lines[3].starts_with(r#"{"hash":"#), "{answers}");
        assert!(lines[4].starts_with(r#"{"error":"unknown request"#), "{answers}");
    }

    #[test]
    fn a_child_that_ends_is_an_error_with_its_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let error = Remote::start("peer", command).err().unwrap().to_string();
        assert!(error.contains("the process of peer ended (exit status: 3)"), "{error}");
    }

    #[test]
    fn a_child_that_ends_leaves_its_cell_and_is_started_again_for_the_next_three_times_at_most() {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo '{"ready":"peer"}'; read line; echo '"supported"'; read line"#]);
        let mut peer = Remote::start("peer", command).unwrap();
        let cell = Cell { bench: Bench::Pair, threads: 1, pinned: true, order: 0, touched: false };
        for _ in 0..=RESTARTS {
            assert_eq!(peer.supports(&cell), Ok(()));
            let error = peer.burst(&cell, 1, 0).unwrap_err().to_string();
            assert!(error.contains("the process of peer ended (exit status: 0)"), "{error}");
        }
        let error = peer.supports(&cell).unwrap_err();
        assert_eq!(error, "the process of peer ended 4 times and is not started again");
    }

    #[test]
    fn a_child_that_cannot_run_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo '{"error":"no huge pages"}'"#]);
        let error = Remote::start("peer", command).err().unwrap().to_string();
        assert_eq!(error, "the process of peer cannot run here: no huge pages");
    }
}
