//! `zonal exporter`, asked by good and bad clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{refusal, signal, stdout};
use crate::top::Kernel;

const LONG: Duration = Duration::from_secs(60);

/// An exporter at work.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(args: &[&str]) -> Exporter {
        Exporter::run(Command::new(env!("CARGO_BIN_EXE_zonal")), args)
    }

    fn run(mut command: Command, args: &[&str]) -> Exporter {
        command.args(["exporter", "--listen", "127.0.0.1:0"]).args(args).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Exporter { address: address.unwrap_or_else(|| panic!("{line}")).to_owned(), child }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// What comes back for these bytes.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // A refusal may come before all is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = self.ask(request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        (head.to_owned(), body.to_owned())
    }

    fn end(mut self) {
        signal("-TERM", &self.child.id().to_string());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_gets_the_form_that_it_asks_for_and_a_proxy_the_same() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let once = stdout(&["exporter", "--once", "--proc", kernel.path()]);
    let open = exporter.get("/metrics").1;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let old = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
    let rather_old = "application/openmetrics-text;q=0.2,text/plain";
    let new = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    for (accept, body) in [
        ("text/plain", &once),
        (browser, &once),
        (old, &once),
        (rather_old, &once),
        (new, &open),
        ("*/*", &open),
        ("application/json", &open),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
        let answer = exporter.ask(request.as_bytes());
        let kind = if body == &once { "text/plain; version=0.0.4" } else { "openmetrics-text" };
        assert!(answer.contains(kind), "{accept}: {answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{accept}: {answer}");
    }
    let whole = format!("GET http://{}/metrics HTTP/1.1\r\n\r\n", exporter.address);
    assert!(exporter.ask(whole.as_bytes()).starts_with("HTTP/1.1 200"));
    exporter.end();
}

#[test]
fn scrapes_are_answered_with_metrics_of_their_moment() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let (head, body) = exporter.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/openmetrics-text"), "{head}");
    openmetrics_parser::openmetrics::parse_openmetrics(&body).unwrap();
    assert!(body.contains("zonal_kernel_events_total{event=\"pgalloc_normal\"} 1000\n"), "{body}");
    kernel.counts(2000);
    assert!(exporter.get("/metrics?x=1").1.contains("{event=\"pgalloc_normal\"} 2000\n"));
    // What it prints once is the same, in the format of the textfile collector.
    let once = stdout(&["exporter", "--once", "--proc", kernel.path()]);
    assert_eq!(once, zonal_text::openmetrics::prometheus(&exporter.get("/metrics").1));
    // A source that is gone for a while is no metric of zero.
    std::fs::rename(kernel.file("vmstat"), kernel.file("aside")).unwrap();
    let (head, body) = exporter.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 503") && body.contains("vmstat"), "{head}\n{body}");
    std::fs::rename(kernel.file("aside"), kernel.file("vmstat")).unwrap();
    assert!(exporter.get("/metrics").0.starts_with("HTTP/1.1 200"));
    exporter.end();
}

#[test]
fn bad_clients_keep_nobody_from_their_metrics() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    // Who says nothing, and who stops in the middle.
    let silent = exporter.connect();
    let mut half = exporter.connect();
    half.write_all(b"GET /metrics HT").unwrap();
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    for (bytes, status) in [
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab".as_slice(), "405"),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404"),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200"),
        (b"\x16\x03\x01\x02\x00\x01\x00", ""),
        (b"GET /metrics HTTP/9.9\r\n\r\n", ""),
        (b"\r\n\r\n\r\n", ""),
        (long.as_bytes(), ""),
        (many.as_bytes(), ""),
    ] {
        let answer = exporter.ask(bytes);
        let line = answer.lines().next().unwrap_or_default();
        assert!(line.contains(status), "{:?}: {line}", String::from_utf8_lossy(&bytes[..20]));
        assert!(!answer.contains("root:"), "{answer}");
        assert!(exporter.get("/metrics").1.ends_with("# EOF\n"), "after {status}");
    }
    drop((silent, half));
    exporter.end();
}

#[test]
fn a_pool_of_a_killed_process_has_no_metrics_of_now() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let name = path.to_str().unwrap();
    crate::top::of_a_killed_process(&path, 60);
    assert!(refusal(&["exporter", "--once", "--pool", name]).contains("is not there"));
    // It was written a moment ago, and the process may be in another PID namespace.
    crate::top::of_a_killed_process(&path, 0);
    let exporter = Exporter::start(&["--pool", name]);
    let (head, body) = exporter.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(body.contains("\nzonal_observed_age_seconds "), "{body}");
    openmetrics_parser::openmetrics::parse_openmetrics(&body).unwrap();
    std::fs::remove_file(&path).unwrap();
    crate::top::of_a_killed_process(&path, 60);
    let (head, body) = exporter.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 503") && body.contains("is not there"), "{head}\n{body}");
    exporter.end();
}

/// Others are served while this client waits.
fn serves_beside(exporter: &Exporter, client: &mut TcpStream, request: &str) {
    client.write_all(request.as_bytes()).unwrap();
    for _ in 0..3 {
        let (head, body) = exporter.get("/metrics");
        assert!(head.starts_with("HTTP/1.1 200") && body.ends_with("# EOF\n"), "{request}: {head}");
    }
}

#[test]
fn a_body_that_is_announced_and_does_not_come_holds_nobody_up() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    for length in ["2000", "9000000000000000000", "18446744073709551615", "99999999999999999999999"]
    {
        for method in ["GET", "POST"] {
            let mut client = exporter.connect();
            let request = format!("{method} /metrics HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            serves_beside(&exporter, &mut client, &request);
            // It is answered itself, by its head alone.
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            let status = if method == "GET" { "HTTP/1.1 200" } else { "HTTP/1.1 405" };
            assert!(answer.starts_with(status), "{answer}");
        }
    }
    let mut client = exporter.connect();
    let chunked = "GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n";
    serves_beside(&exporter, &mut client, chunked);
    exporter.end();
}

#[test]
fn a_client_that_reads_nothing_of_a_large_answer_holds_nobody_up() {
    let kernel = Kernel::new();
    // More than the buffers of two sockets hold.
    let name = "x".repeat(200);
    let events: String = (0..100_000).map(|at| format!("numa_{name}{at} 1\n")).collect();
    std::fs::write(kernel.file("vmstat"), format!("pgalloc_normal 1000\n{events}")).unwrap();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let mut deaf = exporter.connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut first = [0; 8];
    deaf.read_exact(&mut first).unwrap();
    assert!(exporter.get("/metrics").1.len() > 20 << 20);
    assert!(exporter.get("/").0.starts_with("HTTP/1.1 200"));
    // A signal does not wait for it either.
    exporter.end();
}

#[test]
fn many_silent_clients_take_few_threads_and_descriptors() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let mut silent: Vec<_> = (0..200).map(|_| exporter.connect()).collect();
    assert!(exporter.get("/metrics").1.ends_with("# EOF\n"));
    for list in ["task", "fd"] {
        let path = format!("/proc/{}/{list}", exporter.child.id());
        let count = std::fs::read_dir(path).unwrap().count();
        assert!(count < 100, "{count} of {list}");
    }
    // The oldest was told to go.
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    exporter.end();
}

#[test]
fn an_exporter_without_descriptors_serves_again_when_clients_go() {
    let kernel = Kernel::new();
    let limited = "ulimit -n 20; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_zonal")]);
    let exporter = Exporter::run(command, &["--proc", kernel.path()]);
    let silent: Vec<_> = (0..60).map(|_| exporter.connect()).collect();
    drop(silent);
    let begin = Instant::now();
    while !exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200") {
        assert!(begin.elapsed() < LONG, "it does not serve any more");
    }
    exporter.end();
}

#[test]
fn what_cannot_be_served_is_refused() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let taken = ["exporter", "--proc", kernel.path(), "--listen", &exporter.address];
    assert!(refusal(&taken).contains("cannot listen on"));
    let message = refusal(&["exporter", "--listen", "everywhere"]);
    assert!(message.contains("everywhere") && message.contains("ADDRESS:PORT"), "{message}");
    assert!(refusal(&["exporter", "--proc", "/nowhere"]).contains("/nowhere/zoneinfo"));
    exporter.end();
}

/// A real Prometheus: `ZONAL_PROMETHEUS`, or the one of PATH.
#[test]
fn prometheus_scrapes_it() {
    let program = std::env::var("ZONAL_PROMETHEUS").unwrap_or_else(|_| "prometheus".to_owned());
    if Command::new(&program).arg("--version").output().is_err() {
        eprintln!("SKIPPED: no program {program}; ZONAL_PROMETHEUS names one");
        return;
    }
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let config = kernel.file("prometheus.yml");
    let job = format!(
        "global: {{scrape_interval: 200ms}}\nscrape_configs:\n- job_name: zonal\n  \
         static_configs: [{{targets: ['{}']}}]\n",
        exporter.address
    );
    std::fs::write(&config, job).unwrap();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut prometheus = Command::new(&program)
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", kernel.file("data").display()))
        .arg(format!("--web.listen-address={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = |path: &str| -> String {
        let Ok(mut stream) = TcpStream::connect(port) else { return String::new() };
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        let mut answer = String::new();
        let written = stream.write_all(request.as_bytes());
        let _ = written.and_then(|()| stream.read_to_string(&mut answer));
        answer
    };
    let begin = Instant::now();
    let query = "/api/v1/query?query=zonal_kernel_events_total%7Bevent%3D%22pgalloc_normal%22%7D";
    let answer = loop {
        let answer = server(query);
        if answer.contains("\"1000\"") || begin.elapsed() > LONG {
            break answer;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let _ = prometheus.kill();
    let _ = prometheus.wait();
    assert!(answer.contains("\"1000\""), "{answer}");
    exporter.end();
}
