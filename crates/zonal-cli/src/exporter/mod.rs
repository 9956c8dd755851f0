//! `zonal exporter`: the kernel's page allocator, or a pool's, as OpenMetrics over HTTP.
//!
//! One request on a connection, each with a reading of its own; `GET /metrics` and nothing else.
//! What is not asked for is not read: between scrapes nothing happens, but what tracepoints count.

mod http;
mod metrics;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use clap::Args;
use signal_hook::iterator::Signals;

use self::http::{Answer, Wanted};
use crate::output;
use crate::record::ENDS;
use crate::verdict::Verdict;
use crate::watch::source::{Source, SourceArgs};

/// The type that most scrapers ask for.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Prometheus' own text, for those that ask for it alone or rather.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Flags of `zonal exporter`.
#[derive(Args, Debug)]
pub struct ExporterArgs {
    #[command(flatten)]
    pub source: SourceArgs,

    /// Address and port to listen on. Others than this host's may ask only if it says so, as in
    /// 0.0.0.0:9917; there is no password.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9917", value_parser = socket)]
    pub listen: SocketAddr,

    /// Print the metrics once and end, in the text format of the textfile collector of
    /// node_exporter.
    #[arg(long, conflicts_with = "listen")]
    pub once: bool,
}

/// The address of `--listen`.
fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected ADDRESS:PORT, as in 127.0.0.1:9917 or [::1]:9917".to_owned())
}

/// Runs the command.
///
/// # Errors
/// A source that cannot be read at the start; an address that cannot be listened on.
pub fn run(args: &ExporterArgs) -> anyhow::Result<Verdict> {
    let mut source = Source::new(&args.source);
    let reading = source.read()?;
    let first = metrics::text(&reading)?;
    if args.once {
        output::data(&zonal_text::openmetrics::prometheus(&first))?;
        return Ok(Verdict::Pass);
    }
    let listen = || format!("cannot listen on {}", args.listen);
    let listener = TcpListener::bind(args.listen).with_context(listen)?;
    let address = listener.local_addr().with_context(listen)?;
    let mut signals = Signals::new(ENDS)?;
    let source = Mutex::new(source);
    // The threads of the server end with the process: a client cannot hold up a signal.
    thread::Builder::new()
        .spawn(move || http::serve(&listener, move |wanted| answer(wanted, &source)))?;
    output::note(&format!("metrics at http://{address}/metrics"));
    // Metrics that are missing all the time.
    reading.remark.iter().for_each(|remark| output::note(remark));
    signals.forever().next();
    Ok(Verdict::Pass)
}

/// What is at a path, in the form that the client wants.
fn answer(wanted: &Wanted, source: &Mutex<Source>) -> Answer {
    match wanted.path.as_str() {
        "/metrics" => {
            // A reading that panicked leaves nothing half done behind: each begins anew.
            let reading = source.lock().unwrap_or_else(PoisonError::into_inner).read();
            match reading.and_then(|reading| metrics::text(&reading)) {
                Ok(text) if is_plain(wanted) => {
                    Answer::new(200, PROMETHEUS, zonal_text::openmetrics::prometheus(&text))
                }
                Ok(text) => Answer::new(200, OPENMETRICS, text),
                Err(error) => Answer::new(503, PLAIN, format!("{error:#}\n")),
            }
        }
        "/" => Answer::new(200, PLAIN, "the metrics of zonal are at /metrics\n"),
        _ => Answer::new(404, PLAIN, "expected /metrics\n"),
    }
}

/// Whether a client wants plain text: more than OpenMetrics, or as a browser, which shows it and
/// saves what is of no type that it knows.
fn is_plain(wanted: &Wanted) -> bool {
    let weight = |group, kind| wanted.weight((group, kind));
    let (open, plain) = (weight("application", "openmetrics-text"), weight("text", "plain"));
    plain > open || plain == open && weight("text", "html") > open
}
