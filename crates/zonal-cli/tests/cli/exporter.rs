//! `zonal exporter`, asked by good and bad clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{refusal, stdout};
use crate::top::Kernel;

const LONG: Duration = Duration::from_secs(60);

/// An exporter at work.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(args: &[&str]) -> Exporter {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
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
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
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
    // What it prints once is the same.
    let once = stdout(&["exporter", "--once", "--proc", kernel.path()]);
    assert_eq!(once, exporter.get("/metrics").1);
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
    // Who says nothing, who stops in the middle, and who never reads the answer.
    let silent = exporter.connect();
    let mut half = exporter.connect();
    half.write_all(b"GET /metrics HT").unwrap();
    let mut deaf = exporter.connect();
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    (0..50).for_each(|_| deaf.write_all(request).unwrap());
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
    drop((silent, half, deaf));
    exporter.end();
}

#[test]
fn what_cannot_be_served_is_refused() {
    let kernel = Kernel::new();
    let exporter = Exporter::start(&["--proc", kernel.path()]);
    let taken = ["exporter", "--proc", kernel.path(), "--listen", &exporter.address];
    assert!(refusal(&taken).contains("cannot listen on"));
    assert!(refusal(&["exporter", "--listen", "everywhere"]).contains("everywhere"));
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
