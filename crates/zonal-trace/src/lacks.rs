//! What a text lacks that perf, trace-cmd or an editor printed in another form, and how to print
//! it so that it can be read.
//!
//! Asked only of a text whose beginning is of no form that is read.

use crate::error::{TraceErrorKind, excerpt};
use crate::fields;
use crate::ftrace;

/// How perf prints what is needed.
const PERF: &str = "print it with `perf script -F comm,tid,cpu,time,event,trace`";

/// The first line of the kernel's own latency format.
const LATENCY: &[u8] = b"# latency trace v";

/// Lines of the beginning that are looked at.
const LINES_MAX: usize = 64;

/// What the text that begins with `start` lacks; `None` where it does not look like one of events.
pub(crate) fn of(start: &[u8]) -> Option<TraceErrorKind> {
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        let found = "a UTF-16 byte order mark".to_owned();
        let what = "UTF-8, which text is read in";
        let instead = "convert it with `iconv -f UTF-16 -t UTF-8`";
        return Some(TraceErrorKind::TextLacks { what, found, instead });
    }
    let mut lines = start.split(|&byte| byte == b'\n').take(LINES_MAX);
    let line = lines.find(|line| {
        let is_head = line.starts_with(b"#") && !line.starts_with(LATENCY);
        !is_head && !ftrace::is_remark(line)
    })?;
    let (what, instead) = of_line(line)?;
    Some(TraceErrorKind::TextLacks { what, found: format!("`{}`", excerpt(line)), instead })
}

fn of_line(line: &[u8]) -> Option<(&'static str, &'static str)> {
    if line.starts_with(LATENCY) {
        let what = "the time of each event, which the kernel's latency format does not have";
        return Some((what, "`echo 0 > options/latency-format` in tracefs before it is read"));
    }
    let words: Vec<&[u8]> =
        line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).collect();
    // The time and the event's name, one behind the other, both end in a colon.
    let is_both = |pair: &[&[u8]]| pair.iter().all(|word| word.ends_with(b":"));
    let at = words.windows(2).position(is_both)?;
    let before = &words[..at];
    let time = words[at].strip_suffix(b":")?;
    let is_cpu = |word: &&[u8]| {
        let inner = word.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
        inner.is_some_and(|digits| fields::decimal(digits).is_some())
    };
    // `--raw-ts` leaves no space behind the CPU.
    let number = time.rsplit(|&byte| byte == b']').next()?;
    if fields::decimal(number).is_some() {
        let what = "seconds: times are numbers of a clock whose unit it does not tell";
        return Some((what, "print it with `trace-cmd report` without `--raw-ts`"));
    }
    if !number.split(|&byte| byte == b'.').all(|part| fields::decimal(part).is_some()) {
        return None;
    }
    match before.iter().position(is_cpu) {
        Some(0) => Some(("the thread of each event", PERF)),
        Some(_) => None,
        None if before.is_empty() => Some(("the thread and the CPU of each event", PERF)),
        None => Some(("the CPU of each event", PERF)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Option<String> {
        of(text.as_bytes()).map(|kind| kind.to_string())
    }

    #[test]
    fn what_a_line_of_perf_lacks_is_told_with_the_command_that_prints_it() {
        for (line, part) in [
            (
                "  perf 16380/16380 36976.966363:    kmem:mm_page_free: page=1 pfn=0x5 order=0",
                "CPU",
            ),
            ("[000] 36976.966363:    kmem:mm_page_free: page=1 pfn=0x5 order=0", "the thread of"),
            (
                "36976.966363:    kmem:mm_page_free: page=1 pfn=0x5 order=0",
                "the thread and the CPU",
            ),
        ] {
            let message = message(&format!("# a head\n{line}\n")).unwrap();
            assert!(message.contains(part) && message.contains(PERF), "{message}");
        }
    }

    #[test]
    fn numbers_of_a_clock_and_the_latency_format_are_told() {
        let raw = "cpus=2\ncmp:  ls-1992  [001]3940605610067: mm_page_free:   pfn=0x5 order=0\n";
        assert!(message(raw).unwrap().contains("without `--raw-ts`"));
        let spaced = "cmp:  ls-1992  [001] 3940605610067: mm_page_free:   pfn=0x5 order=0\n";
        assert!(message(spaced).unwrap().contains("without `--raw-ts`"));
        let latency = "# tracer: nop\n#\n# latency trace v1.1.5 on 6.18\n";
        assert!(message(latency).unwrap().contains("latency-format"));
    }

    #[test]
    fn another_encoding_is_told() {
        let kind = of(&[0xff, 0xfe, b'#', 0, b' ', 0]).unwrap();
        assert!(kind.to_string().contains("iconv -f UTF-16 -t UTF-8"));
    }

    #[test]
    fn a_text_of_something_else_lacks_nothing() {
        for text in ["hello\n", "key: value:\n", "Node 0, zone DMA\n", "", "a: b\n", "x 1.5: y\n"] {
            assert_eq!(message(text), None, "{text:?}");
        }
    }
}
