//! What a command says of a file that it has written: a note, or one JSON object on a line of its
//! own.

use std::path::Path;

use serde::Serialize;
use zonal_trace::make::Written;

use crate::output;

/// Grows when a field changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Printed<'a, T> {
    schema_version: u32,
    /// The file. What is not UTF-8 in its name is replaced.
    output: &'a str,
    #[serde(flatten)]
    what: &'a T,
}

/// Prints an object about a file: its name, and the fields of `what`.
///
/// # Errors
/// If standard output cannot be written.
pub fn print<T: Serialize>(output: &Path, what: &T) -> anyhow::Result<()> {
    let output = &*output.to_string_lossy();
    let printed = Printed { schema_version: SCHEMA_VERSION, output, what };
    Ok(output::data(&(serde_json::to_string(&printed)? + "\n"))?)
}

/// Size of a trace. A directory's is not counted.
#[derive(Debug, Serialize)]
struct Size {
    events: u64,
    bytes: Option<u64>,
}

/// Says how large a trace is.
///
/// # Errors
/// If standard output cannot be written.
pub fn tell(output: &Path, written: Written, json: bool) -> anyhow::Result<()> {
    if !json {
        note(written);
        return Ok(());
    }
    let Written { events, bytes } = written;
    print(output, &Size { events, bytes })
}

/// Says it to people.
pub fn note(Written { events, bytes }: Written) {
    let counted = output::counted(events, "event");
    match bytes {
        Some(bytes) => {
            let each = bytes as f64 / events.max(1) as f64;
            output::note(&format!("{counted}, {bytes} bytes, {each:.3} per event"));
        }
        None => output::note(&counted),
    }
}
