//! `zonal exporter`: the kernel's page allocator, or a pool's, as OpenMetrics over HTTP.
//!
//! One request at a time, each with a reading of its own; `GET /metrics` and nothing else. What is
//! not asked for is not read: between scrapes nothing happens, but what tracepoints count.

mod metrics;

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::output;
use crate::record::ENDS;
use crate::verdict::Verdict;
use crate::watch::source::{Source, SourceArgs};

/// A signal is seen after this.
const WAIT: Duration = Duration::from_millis(200);
/// The type that scrapers ask for.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Flags of `zonal exporter`.
#[derive(Args, Debug)]
pub struct ExporterArgs {
    #[command(flatten)]
    pub source: SourceArgs,

    /// Address and port to listen on. Others than this host's may ask only if it says so, as in
    /// 0.0.0.0:9917; there is no password.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9917")]
    pub listen: SocketAddr,

    /// Print the metrics once and end, as for the textfile collector of node_exporter.
    #[arg(long)]
    pub once: bool,
}

/// Runs the command.
///
/// # Errors
/// A source that cannot be read at the start; an address that cannot be listened on.
pub fn run(args: &ExporterArgs) -> anyhow::Result<Verdict> {
    let mut source = Source::new(&args.source);
    let first = metrics::text(&source.read()?);
    if args.once {
        output::data(&first)?;
        return Ok(Verdict::Pass);
    }
    let ended = Arc::new(AtomicBool::new(false));
    for number in ENDS {
        signal_hook::flag::register(number, Arc::clone(&ended))?;
    }
    let server = Server::http(args.listen)
        .map_err(|error| anyhow!("cannot listen on {}: {error}", args.listen))?;
    output::note(&format!("metrics at http://{}/metrics", server.server_addr()));
    // Relaxed: the flag carries no data.
    while !ended.load(Ordering::Relaxed) {
        if let Some(request) = server.recv_timeout(WAIT)? {
            answer(request, &mut source);
        }
    }
    Ok(Verdict::Pass)
}

/// Answers one request. A client that has gone is no error.
fn answer(request: Request, source: &mut Source) {
    let path = request.url().split('?').next().unwrap_or_default();
    let (status, kind, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => match source.read() {
            Ok(reading) => (200, OPENMETRICS, metrics::text(&reading)),
            Err(error) => (503, PLAIN, format!("{error:#}\n")),
        },
        (Method::Get | Method::Head, "/") => {
            (200, PLAIN, "the metrics of zonal are at /metrics\n".to_owned())
        }
        (Method::Get | Method::Head, _) => (404, PLAIN, "expected /metrics\n".to_owned()),
        _ => (405, PLAIN, "expected GET\n".to_owned()),
    };
    let Ok(kind) = Header::from_bytes("Content-Type", kind) else { return };
    let length = text.len();
    let body = std::io::Cursor::new(text.into_bytes()).take(length as u64);
    let response = Response::new(status.into(), vec![kind], body, Some(length), None);
    let _ = request.respond(response);
}
