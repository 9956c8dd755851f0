//! What perf's command line says of whose events it recorded.
//!
//! `perf.data` keeps it as words, and `perf script --header` prints it. Filters and groups of
//! processes leave no other trace in either.
//!
//! ```text
//!  perf record -a -R -e kmem:* --filter 'order > 0' -- make -j8
//!  └ tool ───┘ └ its options ─────────────────────┘    └ the command: none of its options count
//! ```

use crate::error::{Fault, bad_field};

/// What is expected of a file.
pub(super) const ALL: &str = "events of all threads on all CPUs (`perf record -a`)";

/// Options of one letter that take the next word.
const WITH_WORD: &str = "eptuCcomFGDjkr";
/// Long ones that do.
const LONG_WITH_WORD: &str = "event filter pid tid uid realtime cpu count output freq mmap-pages \
    call-graph cgroup delay branch-filter clockid proc-map-timeout clang-path clang-opt vmlinux \
    affinity max-size num-thread-synthesize control synth debuginfod mmap-flush";

/// What it says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    /// What leaves events out, in words.
    part: Option<&'static str>,
    /// Events of named CPUs, or of all.
    of_cpus: bool,
    /// Events of processes, threads or users that are named.
    of_named: bool,
    /// A command was run.
    has_command: bool,
    /// `perf record`: others, such as `perf kmem record`, take all CPUs by themselves.
    is_record: bool,
}

impl Command {
    /// Reads the words of a command line, `perf` first.
    pub(crate) fn read<'w>(words: impl IntoIterator<Item = &'w str>) -> Command {
        let mut words = words.into_iter().skip(1);
        let mut command = Command::default();
        let is_record = |word: &str| word.len() > 2 && "record".starts_with(word);
        let mut tools = words.by_ref().filter(|word| !word.starts_with('-'));
        match tools.next() {
            Some(word) if is_record(word) => command.is_record = true,
            _ if tools.any(is_record) => {}
            _ => return command,
        }
        while let Some(word) = words.next() {
            let takes_next = match (word.strip_prefix("--"), word.strip_prefix('-')) {
                (Some(""), _) => {
                    command.has_command = words.next().is_some();
                    break;
                }
                (Some(long), _) => command.long(long),
                (None, Some(letters)) => command.short(letters),
                (None, None) => {
                    command.has_command = true;
                    break;
                }
            };
            if takes_next {
                words.next();
            }
        }
        command
    }

    /// Takes an option of letters, several in one; returns whether the next word is its value.
    fn short(&mut self, letters: &str) -> bool {
        for (at, letter) in letters.char_indices() {
            match letter {
                'a' | 'C' => self.of_cpus = true,
                'p' | 't' | 'u' => self.of_named = true,
                'G' => self.part = Some("those of groups of processes (`-G`)"),
                // Their value may be in the same word, and need not be there.
                'S' | 'I' | 'z' => return false,
                _ => {}
            }
            if WITH_WORD.contains(letter) {
                return letters.len() == at + letter.len_utf8();
            }
        }
        false
    }

    /// The same of a long one, which may be cut short.
    fn long(&mut self, word: &str) -> bool {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        let is = |full: &str, least: usize| name.len() >= least && full.starts_with(name);
        if is("filter", 3) {
            self.part = Some("those that pass a filter (`--filter`)");
        } else if is("cgroup", 2) {
            self.part = Some("those of groups of processes (`--cgroup`)");
        } else if is("exclude-perf", 9) {
            self.part = Some("those of others than perf (`--exclude-perf`)");
        } else if is("all-cpus", 5) || name == "cpu" {
            self.of_cpus = true;
        } else if ["pid", "tid", "uid"].contains(&name) {
            self.of_named = true;
        }
        let takes_word = |full: &str| full == name || (name.len() > 2 && full.starts_with(name));
        value.is_none() && LONG_WITH_WORD.split_ascii_whitespace().any(takes_word)
    }

    /// What leaves events out, in words: nothing else in a file tells of it.
    pub(crate) fn leaves_out(&self) -> Option<&'static str> {
        self.part
    }

    /// Whose events there are alone, where nothing but the command line tells.
    pub(crate) fn of_part(&self) -> Option<&'static str> {
        let of_command = self.is_record && self.has_command && !self.of_cpus;
        let of_named = self.of_named.then_some("those of processes that were named");
        self.part.or(of_named).or(of_command.then_some("those of one command"))
    }
}

/// What is wrong with the text of perf that has this line in its header; most lines tell nothing.
pub(crate) fn of_text(line: &[u8]) -> Option<Fault> {
    let words = line.strip_prefix(b"# cmdline : ")?;
    let words = String::from_utf8_lossy(words);
    let found = Command::read(words.split(' ')).of_part()?;
    Some(bad_field("perf events", ALL, found.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<&'static str> {
        Command::read(line.split(' ')).of_part()
    }

    #[test]
    fn what_leaves_events_out_is_found_among_perfs_own_options() {
        let filter = Some("those that pass a filter (`--filter`)");
        assert_eq!(of("perf record -a -e kmem:* --filter order>0 -- true"), filter);
        assert_eq!(of("perf record -aRe kmem:* --filter=order>0 true"), filter);
        assert_eq!(of("/usr/bin/perf rec -a --filt order>0"), filter);
        let groups = Some("those of groups of processes (`-G`)");
        assert_eq!(of("perf record -a -e kmem:* -G web -- sleep 1"), groups);
        assert_eq!(of("perf record -aGweb sleep 1"), groups);
        assert_eq!(
            of("perf --debug verbose record -a --cgroup=web"),
            Some("those of groups of processes (`--cgroup`)")
        );
        let others = Some("those of others than perf (`--exclude-perf`)");
        assert_eq!(of("perf record -a --exclude-perf -- true"), others);
    }

    #[test]
    fn options_of_the_command_and_values_are_none_of_perfs() {
        assert_eq!(of("perf record -a -- sort -G --filter x"), None);
        assert_eq!(of("perf record -a -o -G sort --filter x"), None);
        assert_eq!(of("perf record -a sort --filter x -G y"), None);
        assert_eq!(of("perf record -g -a --call-graph dwarf -z -c 1 -- grep -p"), None);
        assert_eq!(of("perf record --output --filter -a true"), None);
    }

    #[test]
    fn a_command_alone_is_recorded_where_no_cpus_are_named() {
        let one = Some("those of one command");
        assert_eq!(of("perf record -q -R -e kmem:* -c 1 -o f -- sh -c -a"), one);
        assert_eq!(of("perf record -e kmem:* make -a"), one);
        assert_eq!(of("perf record -e kmem:*"), None, "without a command, all CPUs");
        assert_eq!(of("perf record -e kmem:* --all-cpus make"), None);
        assert_eq!(of("perf record -e kmem:* -p 7"), Some("those of processes that were named"));
        assert_eq!(of("perf kmem --page record make"), None, "all CPUs by itself");
        assert_eq!(of("perf"), None);
        assert_eq!(of("perf script -i x"), None);
    }

    #[test]
    fn the_header_of_a_text_tells_whose_events_are_in_it() {
        let told = |line: &str| of_text(line.as_bytes()).map(|fault| fault.to_string());
        let message = told("# cmdline : /usr/bin/perf record -R -e kmem:* -- make").unwrap();
        assert!(message.contains("of all threads on all CPUs"), "{message}");
        assert!(message.contains("those of one command"), "{message}");
        assert_eq!(told("# cmdline : /usr/bin/perf record -a -R -e kmem:* -- make "), None);
        assert_eq!(told("# cpudesc : perf record make"), None);
    }
}
