//! `zonal zoneinfo`, `buddyinfo`, `pagetypeinfo`, `vmstat`, `numastat`, `meminfo`: a state in the
//! kernel's own texts.
//!
//! ```text
//!   TRACE ── replay on no memory ──► State ─┐
//!                                           ├─► Document ──► the kernel's bytes, or JSON
//!   --of FILE ─────────── parse ────────────┘
//! ```

pub mod args;

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, ensure};
use zonal::text::layout_of;
use zonal_core::types::NodeId;
use zonal_replay::state::{Document, Origin, Text, json};
use zonal_replay::{EndState, Replay};
use zonal_trace::samples;

use self::args::{NodeArgs, StateArgs, VmstatArgs};
use crate::output;
use crate::verdict::Verdict;

/// No text of a kernel is nearly as long.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Prints one of the texts that are of the whole machine.
///
/// # Errors
/// Bad input, with file and line.
pub fn run(text: Text, args: &StateArgs) -> anyhow::Result<Verdict> {
    print(text, None, args)
}

/// Prints one of the texts that there are one of per node.
///
/// # Errors
/// Bad input, with file and line, or a node that the machine does not have.
pub fn run_of_node(text: Text, args: &NodeArgs) -> anyhow::Result<Verdict> {
    print(text, args.node.map(NodeId), &args.state)
}

/// Prints `vmstat`, or all counters as metrics.
///
/// # Errors
/// As [`run_of_node`].
pub fn run_vmstat(args: &VmstatArgs) -> anyhow::Result<Verdict> {
    if !args.openmetrics {
        return run_of_node(Text::Vmstat, &args.node);
    }
    let end = replayed(&args.node.state)?;
    output::data(&end.state.openmetrics())?;
    Ok(verdict(&end))
}

fn print(text: Text, node: Option<NodeId>, args: &StateArgs) -> anyhow::Result<Verdict> {
    if let Some(path) = &args.of {
        let document = Document::parse(text, &read_file(path)?)
            .map_err(|e| anyhow::anyhow!("{}: line {}: {}", path.display(), e.line(), e.kind()))?;
        let of = path.display().to_string();
        output::data(&shown(text, &document, &Origin { of, policy: None }, args.json)?)?;
        return Ok(Verdict::Pass);
    }
    let policy = args.policy.policy()?;
    let layout = args.layout.unwrap_or_else(|| layout_of(&policy));
    let end = replayed(args)?;
    let state = &end.state;
    if let Some(node) = node {
        let nodes = state.nodes().count();
        ensure!(
            usize::from(node.0) < nodes,
            "--node {}: the machine of {} has nodes 0 to {}",
            node.0,
            end.trace,
            nodes - 1
        );
    }
    let document = Document::of(text, state, node, layout);
    let origin = Origin { of: end.trace.clone(), policy: Some(policy.name) };
    output::data(&shown(text, &document, &origin, args.json)?)?;
    Ok(verdict(&end))
}

fn shown(
    text: Text,
    document: &Document,
    origin: &Origin,
    as_json: bool,
) -> anyhow::Result<String> {
    Ok(match as_json {
        true => serde_json::to_string_pretty(&json(text, document, origin))? + "\n",
        false => document.to_string(),
    })
}

fn replayed(args: &StateArgs) -> anyhow::Result<EndState> {
    let recording = match &args.trace {
        Some(path) => crate::trace::open(path, None)?,
        None => samples::zlib_make_j4()?,
    };
    let mut replay = Replay::new(&recording).policy(args.policy.policy()?);
    if let Some(events) = args.limit {
        replay = replay.limit(events);
    }
    let end = replay.end_state(&mut output::Bar::default().watch())?;
    end.faults.iter().for_each(|fault| output::note(&format!("FAILED: {fault}")));
    Ok(end)
}

fn verdict(end: &EndState) -> Verdict {
    if end.faults.is_empty() { Verdict::Pass } else { Verdict::Failed }
}

/// The text of a file, or of stdin for `-`.
fn read_file(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let limit = TEXT_BYTES_MAX + 1;
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(limit).read_to_string(&mut text),
        false => {
            std::fs::File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text))
        }
    };
    let long = text.len() as u64 > TEXT_BYTES_MAX;
    ensure!(!long, "{}: longer than {} MiB", path.display(), TEXT_BYTES_MAX >> 20);
    read.with_context(|| format!("cannot read {}: expected a text of a kernel", path.display()))?;
    Ok(text)
}
