//! What QEMU is asked while a machine runs: commands of its machine protocol, a line of JSON each,
//! each answered by a line that has `return` or `error`. Lines of events stand between them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long an answer may take: a busy host's emulator has little of its CPUs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Puts the machine's late memory into a slot of the second node, and returns when it is in.
pub fn plug(monitor: &Path) -> Result<()> {
    let mut socket = UnixStream::connect(monitor).context("the emulator has no monitor")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(socket.try_clone()?);
    let dimm = json!({ "driver": "pc-dimm", "id": "dimm", "memdev": "late", "node": 1 });
    for (command, arguments) in [("qmp_capabilities", json!({})), ("device_add", dimm)] {
        let line = json!({ "execute": command, "arguments": arguments });
        socket.write_all(format!("{line}\n").as_bytes())?;
        answer(&mut answers).with_context(|| format!("the emulator was told {command}"))?;
    }
    Ok(())
}

/// Reads to the answer of a command.
fn answer(lines: &mut impl BufRead) -> Result<()> {
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).context("it does not answer")? == 0 {
            bail!("it has gone without an answer");
        }
        let said: Value = serde_json::from_str(&line).with_context(|| format!("it said {line}"))?;
        if let Some(error) = said.get("error") {
            bail!("it refused: {error}");
        }
        if said.get("return").is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_behind_the_greeting_and_events_and_a_refusal_is_an_error() {
        let said = "{\"QMP\": {}}\r\n{\"event\": \"RESUME\"}\r\n{\"return\": {}}\r\n\
                    {\"error\": {\"class\": \"GenericError\", \"desc\": \"no slot\"}}\r\n";
        let mut lines = said.as_bytes();
        answer(&mut lines).unwrap();
        assert!(answer(&mut lines).unwrap_err().to_string().contains("no slot"));
        assert!(answer(&mut lines).unwrap_err().to_string().contains("gone"));
    }
}
