//! What machine this is, as reports name it.
//!
//! A number without its machine is worth nothing. Nothing here fails: what cannot be found out is
//! "unknown" or 0, because a benchmark should not stop over it.

use super::cgroup::{CgroupFiles, memory_limit};
use super::os;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files that describe the machine. Tests point them at forged ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFiles {
    /// `/proc/cpuinfo`.
    pub cpuinfo: PathBuf,
    /// `/proc/meminfo`.
    pub meminfo: PathBuf,
    /// `/sys/kernel/mm`: `hugepages` and `transparent_hugepage` are below.
    pub mm: PathBuf,
}

impl Default for MachineFiles {
    fn default() -> MachineFiles {
        MachineFiles {
            cpuinfo: "/proc/cpuinfo".into(),
            meminfo: "/proc/meminfo".into(),
            mm: "/sys/kernel/mm".into(),
        }
    }
}

/// The administrator's pool of 2 MiB pages, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages2M {
    /// In the pool.
    pub total: u64,
    /// Of these, not handed out.
    pub free: u64,
    /// Of the free ones, promised to a mapping.
    pub reserved: u64,
}

/// This machine, as far as it can be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the processor.
    pub cpu_model: String,
    /// Instruction set, as `uname` names it.
    pub arch: String,
    /// Kernel release.
    pub kernel_release: String,
    /// Memory of the machine, as the kernel counts it.
    pub mem_bytes: u64,
    /// 2 MiB pages.
    pub huge_2m: HugePages2M,
    /// Transparent huge pages: "always", "madvise", "never" or "unknown".
    pub transparent_huge: String,
}

impl Machine {
    /// Looks at this machine.
    pub fn read() -> Machine {
        Machine::read_from(&MachineFiles::default())
    }

    /// Looks at this machine through other files.
    pub fn read_from(files: &MachineFiles) -> Machine {
        let (arch, kernel_release) = os::names();
        let cpuinfo = text(&files.cpuinfo);
        let mem_kib = field(&text(&files.meminfo), "MemTotal").and_then(first_number);
        Machine {
            cpu_model: cpu_model(&cpuinfo).unwrap_or_else(|| "unknown".to_string()),
            arch,
            kernel_release,
            mem_bytes: mem_kib
                .map_or_else(|| os::memory_and_swap().0, |kib| kib.saturating_mul(1024)),
            huge_2m: huge_2m(&files.mm.join("hugepages/hugepages-2048kB")),
            transparent_huge: chosen(&text(&files.mm.join("transparent_hugepage/enabled"))),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}), {} {}, {} MiB, transparent huge pages {}, 2 MiB pages {} ({} free)",
            self.cpu_model,
            self.arch,
            os::NAME,
            self.kernel_release,
            self.mem_bytes >> 20,
            self.transparent_huge,
            self.huge_2m.total,
            self.huge_2m.free,
        )
    }
}

/// The processor's name: x86 prints one; elsewhere the implementer and part numbers must do.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = ["model name", "Model", "cpu model", "uarch"];
    if let Some(name) = named.iter().find_map(|key| field(cpuinfo, key)).filter(|n| !n.is_empty()) {
        return Some(words(name));
    }
    let (implementer, part) = (field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?);
    Some(format!("implementer {implementer} part {part}"))
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The word in brackets, as sysfs marks a choice: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or("unknown", |(word, _)| word).to_string()
}

fn huge_2m(folder: &Path) -> HugePages2M {
    let count = |name: &str| first_number(&text(&folder.join(name))).unwrap_or(0);
    HugePages2M {
        total: count("nr_hugepages"),
        free: count("free_hugepages"),
        reserved: count("resv_hugepages"),
    }
}

/// Bytes that this process may write to before there are none left, swap included: the machine's,
/// or fewer where a control group allows fewer.
pub fn memory_bytes() -> u64 {
    Room::of_process(&CgroupFiles::default()).bytes
}

/// Memory that can be written to before there is none left, swap included, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// "this machine", or the file of a control group's limit.
    pub(crate) owner: String,
}

impl Room {
    /// The machine's.
    pub(crate) fn of_machine() -> Room {
        let (memory, swap) = os::memory_and_swap();
        Room { bytes: memory.saturating_add(swap), owner: "this machine".to_owned() }
    }

    /// The machine's, or less if a control group of this process allows less.
    pub(crate) fn of_process(files: &CgroupFiles) -> Room {
        let machine = Room::of_machine();
        let Some(limit) = memory_limit(files) else { return machine };
        let bytes = limit.memory.saturating_add(limit.swap.min(os::memory_and_swap().1));
        match bytes < machine.bytes {
            true => {
                let owner = format!("the control group of this process ({})", limit.file.display());
                Room { bytes, owner }
            }
            false => machine,
        }
    }
}

/// What is looked for in a file stands in front of this.
const TEXT_BYTES: u64 = 64 * 1024;

/// The beginning of a file's text, empty when it cannot be read. A file may have no end.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_BYTES).read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        let machine = Machine::read();
        assert!(machine.mem_bytes > 0);
        assert!(!machine.kernel_release.is_empty());
        assert!(!machine.to_string().contains('\n'));
    }

    #[test]
    fn forged_files_are_read_and_missing_ones_are_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = MachineFiles { cpuinfo: at("cpuinfo"), meminfo: at("meminfo"), mm: at("mm") };
        let unknown = Machine::read_from(&files);
        assert_eq!(unknown.cpu_model, "unknown");
        assert_eq!(unknown.transparent_huge, "unknown");
        assert_eq!(unknown.huge_2m, HugePages2M::default());
        assert!(unknown.mem_bytes > 0, "sysinfo stands in");

        let pool = at("mm").join("hugepages/hugepages-2048kB");
        std::fs::create_dir_all(&pool).unwrap();
        std::fs::create_dir_all(at("mm").join("transparent_hugepage")).unwrap();
        std::fs::write(&files.cpuinfo, "processor\t: 0\nmodel name\t: Chip(R)  X, 2 GHz\n")
            .unwrap();
        std::fs::write(&files.meminfo, "MemTotal:   2048 kB\n").unwrap();
        std::fs::write(pool.join("nr_hugepages"), "7\n").unwrap();
        std::fs::write(pool.join("free_hugepages"), "3\n").unwrap();
        let enabled = at("mm").join("transparent_hugepage/enabled");
        std::fs::write(enabled, "always [madvise] never\n").unwrap();
        let machine = Machine::read_from(&files);
        assert_eq!(machine.cpu_model, "Chip(R) X, 2 GHz");
        assert_eq!(machine.mem_bytes, 2 << 20);
        assert_eq!(machine.huge_2m, HugePages2M { total: 7, free: 3, reserved: 0 });
        assert_eq!(machine.transparent_huge, "madvise");
    }

    /// A program that reads all of it first ends for want of memory.
    #[test]
    #[cfg(unix)]
    fn a_file_without_end_is_read_in_part() {
        let folder = tempfile::tempdir().unwrap();
        let meminfo = folder.path().join("meminfo");
        std::fs::write(&meminfo, b"MemTotal: 2048 kB\n\xff").unwrap();
        let files = MachineFiles { cpuinfo: "/dev/zero".into(), meminfo, mm: "/dev".into() };
        let machine = Machine::read_from(&files);
        assert_eq!((machine.cpu_model.as_str(), machine.mem_bytes), ("unknown", 2 << 20));
    }

    #[test]
    fn an_arm_processor_is_named_by_its_numbers() {
        let cpuinfo = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n";
        assert_eq!(cpu_model(cpuinfo).unwrap(), "implementer 0x41 part 0xd0c");
    }
}
