//! What the instructions of an image say of it: who calls a panic, how much stack each function
//! takes, and how much a call takes with all that it calls. Read from what `objdump` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Most bytes of stack that a function of the core should take.
const STACK_MOST: u64 = 1024;
/// A return address, or a register that is pushed.
const PUSHED: u64 = 8;
/// What a program calls of the image.
const CALLED: [&str; 4] = ["minimal::alloc", "minimal::free", "minimal::layout", "minimal::start"];

/// Calls of panics and stack frames, by function.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// By what is called: functions that call it, and how often.
    panics: BTreeMap<String, BTreeMap<String, u64>>,
    /// Bytes of stack of functions that take more than they push.
    stack: BTreeMap<String, u64>,
    /// Bytes that each function pushes, its return address included.
    pushed: BTreeMap<String, u64>,
    /// What each function calls or jumps to.
    calls: BTreeMap<String, BTreeSet<String>>,
}

impl Frames {
    /// Those of an image; `None` where there is no `objdump`.
    pub fn of(image: &Path) -> Result<Option<Frames>> {
        let mut command = Command::new("objdump");
        command.args(["--disassemble", "--demangle", "--no-show-raw-insn", "-M", "intel"]);
        let Ok(output) = command.arg(image).output() else { return Ok(None) };
        ensure!(output.status.success(), "objdump cannot read {}", image.display());
        let text = String::from_utf8(output.stdout).context("objdump printed no text")?;
        Ok(Some(Frames::read(&text)))
    }

    fn read(text: &str) -> Frames {
        let mut frames = Frames::default();
        let mut function = "";
        for line in text.lines() {
            if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
                function = name.1;
                frames.pushed.insert(function.to_owned(), PUSHED);
            } else if line.contains("\tpush ") {
                *frames.pushed.entry(function.to_owned()).or_default() += PUSHED;
            } else if let Some(bytes) = stack_taken(line) {
                *frames.stack.entry(function.to_owned()).or_default() += bytes;
            } else if let Some(called) = panic_called(line) {
                let callers = frames.panics.entry(called.to_owned()).or_default();
                *callers.entry(function.to_owned()).or_default() += 1;
            } else if let Some(called) = called(line) {
                frames.calls.entry(function.to_owned()).or_default().insert(called.to_owned());
            }
        }
        frames
    }

    /// Bytes of stack of a call with all that it calls, along the deepest way, and that way. A
    /// function that calls itself counts once.
    fn deepest<'f>(&'f self, function: &'f str, above: &mut Vec<&'f str>) -> (u64, Vec<&'f str>) {
        if above.contains(&function) {
            return (0, Vec::new());
        }
        above.push(function);
        let below = self.calls.get(function).into_iter().flatten();
        let below = below.map(|called| self.deepest(called, above));
        let (deeper, mut way) = below.max_by_key(|(bytes, _)| *bytes).unwrap_or_default();
        above.pop();
        way.insert(0, function);
        let own = [&self.stack, &self.pushed].map(|bytes| bytes.get(function).copied());
        (deeper + own.into_iter().flatten().sum::<u64>(), way)
    }

    /// Prints the panics with their callers, and the functions with the largest frames.
    pub fn print(&self, name: &str) {
        let calls: u64 = self.panics.values().flat_map(BTreeMap::values).sum();
        println!("{name:10} panics: {calls} calls");
        for (called, callers) in &self.panics {
            let calls: u64 = callers.values().sum();
            println!("  {called}: {calls}");
            for (caller, calls) in callers {
                println!("    {calls:3} {caller}");
            }
        }
        println!("{name:10} stack frames above {STACK_MOST} bytes");
        for (function, bytes) in self.stack.iter().filter(|(_, bytes)| **bytes > STACK_MOST) {
            println!("    {bytes:6} {function}");
        }
        println!("{name:10} stack of a call with all that it calls");
        for function in CALLED {
            let (bytes, way) = self.deepest(function, &mut Vec::new());
            println!("    {bytes:6} {}", way.join(" > "));
        }
    }
}

/// Bytes that an instruction takes off the stack at once.
fn stack_taken(line: &str) -> Option<u64> {
    let (_, bytes) = line.split_once("sub    rsp,0x")?;
    u64::from_str_radix(bytes.trim(), 16).ok()
}

/// The function that an instruction calls or jumps to, if it is the beginning of one.
fn called(line: &str) -> Option<&str> {
    let (instruction, target) = line.split_once(" <")?;
    let target = target.strip_suffix('>')?;
    let jumps = ["call ", "jmp "].iter().any(|by| instruction.contains(by));
    let inside = target.rsplit_once("+0x").is_some_and(|(_, at)| !at.contains(['<', '>', ' ']));
    (jumps && !inside).then_some(target)
}

/// The panic that an instruction calls or jumps to.
fn panic_called(line: &str) -> Option<&str> {
    let (instruction, target) = line.rsplit_once('<').filter(|(_, to)| !to.contains("+0x"))?;
    let jumps = instruction.contains("call ") || instruction.contains("jmp ");
    let target = target.trim_end_matches('>');
    let panics = ["panicking::", "panic_for", "_failed", "_fail>", "len_mismatch"];
    let is_panic = panics.iter().any(|part| line.contains(part));
    (jumps && is_panic)
        .then(|| line.split_once(" <").map_or(target, |(_, to)| to))
        .map(|name| name.trim_end_matches('>'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
0000000000001000 <zone::take>:
    1000:\tsub    rsp,0x418
    1007:\tcall   2000 <core::panicking::panic_bounds_check>
    100c:\tcall   2000 <core::panicking::panic_bounds_check>
    1011:\tcall   3000 <zone::free>
    1013:\tjne    1030 <zone::take+0x30>
0000000000003000 <zone::free>:
    3000:\tsub    rsp,0x8
    3004:\tjmp    2100 <core::option::expect_failed>
";

    #[test]
    fn calls_of_panics_and_frames_are_counted_by_function() {
        let frames = Frames::read(TEXT);
        let of = |callers: &[(&str, u64)]| {
            callers.iter().map(|(name, calls)| (name.to_string(), *calls)).collect()
        };
        let expected: BTreeMap<String, BTreeMap<String, u64>> = [
            ("core::panicking::panic_bounds_check".to_owned(), of(&[("zone::take", 2)])),
            ("core::option::expect_failed".to_owned(), of(&[("zone::free", 1)])),
        ]
        .into();
        assert_eq!(frames.panics, expected);
        assert_eq!(frames.stack, of(&[("zone::take", 0x418), ("zone::free", 8)]));
    }

    #[test]
    fn a_call_takes_the_stack_of_the_deepest_way_through_it() {
        let frames = Frames::read(
            "\
0000000000001000 <a<u8>::take>:
    1000:\tpush   rbx
    1001:\tsub    rsp,0x10
    1007:\tcall   2000 <b::small>
    100c:\tcall   3000 <c::large>
    1011:\tjne    1030 <a<u8>::take+0x30>
0000000000002000 <b::small>:
    2000:\tsub    rsp,0x20
    2004:\tret
0000000000003000 <c::large>:
    3000:\tsub    rsp,0x100
    3004:\tjmp    3000 <c::large>
    3008:\tjmp    2000 <b::small>
",
        );
        let (bytes, way) = frames.deepest("a<u8>::take", &mut Vec::new());
        let sum = (8 + 8 + 0x10) + (8 + 0x100) + (8 + 0x20);
        assert_eq!((bytes, way), (sum, vec!["a<u8>::take", "c::large", "b::small"]));
        assert_eq!(frames.deepest("nobody", &mut Vec::new()), (0, vec!["nobody"]));
    }
}
