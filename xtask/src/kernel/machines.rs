//! Machines to boot.

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// A PC: PVH, ACPI, local APICs.
    X86,
    /// QEMU's board `virt`: PSCI, a device tree, a GIC.
    Arm,
    /// QEMU's board `virt`: SBI, a device tree.
    Riscv,
}

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 3] = [Arch::X86, Arch::Arm, Arch::Riscv];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86 => "x86-64",
            Arch::Arm => "aarch64",
            Arch::Riscv => "riscv64",
        }
    }
    /// As `uname` calls it.
    pub fn machine(self) -> &'static str {
        match self {
            Arch::X86 => "x86_64",
            Arch::Arm => "aarch64",
            Arch::Riscv => "riscv64",
        }
    }
    /// What the kernel is built for.
    pub fn target(self) -> &'static str {
        match self {
            Arch::X86 => "x86_64-unknown-none",
            Arch::Arm => "aarch64-unknown-none-softfloat",
            Arch::Riscv => "riscv64imac-unknown-none-elf",
        }
    }
    /// The emulator.
    pub fn emulator(self) -> &'static str {
        match self {
            Arch::X86 => "qemu-system-x86_64",
            Arch::Arm => "qemu-system-aarch64",
            Arch::Riscv => "qemu-system-riscv64",
        }
    }
    /// The Debian package that has it.
    pub fn package(self) -> &'static str {
        match self {
            Arch::X86 => "qemu-system-x86",
            Arch::Arm => "qemu-system-arm",
            Arch::Riscv => "qemu-system-misc",
        }
    }
    /// The programs that there are for it.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Arch::X86 => &["kernel", "smallest"],
            Arch::Arm | Arch::Riscv => &["kernel"],
        }
    }
    /// The board, and no devices but a serial port and a way to turn off.
    pub fn options(self) -> Vec<&'static str> {
        let board: &[&str] = match self {
            Arch::X86 => &[
                "-machine",
                "q35",
                "-cpu",
                "max",
                "-device",
                "isa-debug-exit,iobase=0xf4,iosize=4",
            ],
            Arch::Arm => &["-machine", "virt", "-cpu", "cortex-a72"],
            Arch::Riscv => &["-machine", "virt"],
        };
        let all = ["-nodefaults", "-display", "none", "-serial", "stdio"];
        [board, &all, &["-no-reboot"]].concat()
    }
}

/// A node: MiB of memory, and CPUs from and to, if it has any.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    mib: u32,
    cpus: Option<(u32, u32)>,
}

/// How emulated CPUs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// They take turns.
    Turns,
    /// At the same time.
    Parallel,
    /// They take turns, and the clock counts instructions: timers interrupt far more often than
    /// the emulator could by the host's clock.
    Counted,
}

/// A machine, and what the kernel is to do.
#[derive(Clone, Debug)]
pub struct Machine {
    /// For people.
    pub name: &'static str,
    cpus: u32,
    /// CPUs that may come, with those that are there.
    most_cpus: u32,
    mib: u32,
    nodes: Vec<Node>,
    /// MiB of a DIMM that comes while the kernel runs, to the second node.
    pub late_mib: u32,
    /// More of the board, if it is to be another than usual.
    board: &'static str,
    time: Time,
    /// The core is told that the kernel has sections in front of it, so CPUs fence each other. On
    /// x86-64 it has.
    pub sections: bool,
    /// The program that boots.
    pub program: &'static str,
    /// The command line.
    pub words: String,
    /// The release that its texts are judged by, if they are.
    pub release: Option<&'static str>,
}

const fn node(mib: u32, from: u32, to: u32) -> Node {
    Node { mib, cpus: Some((from, to)) }
}

const ALL: &str = "programs memory faults period=20000 rounds=20000";

impl Machine {
    fn new(name: &'static str, cpus: u32, mib: u32) -> Machine {
        Machine {
            name,
            cpus,
            most_cpus: cpus,
            mib,
            nodes: Vec::new(),
            late_mib: 0,
            board: "",
            time: Time::Turns,
            sections: false,
            program: "kernel",
            words: ALL.to_owned(),
            release: None,
        }
    }

    fn nodes(self, nodes: &[Node]) -> Machine {
        Machine { nodes: nodes.to_vec(), mib: nodes.iter().map(|node| node.mib).sum(), ..self }
    }

    fn parallel(self) -> Machine {
        Machine { time: Time::Parallel, ..self }
    }

    /// The clock counts instructions: a timer interrupts each 10000 of them.
    fn counted(self) -> Machine {
        let words = "programs memory faults period=10000 rounds=4000".to_owned();
        Machine { time: Time::Counted, words, ..self }
    }

    fn with_sections(self) -> Machine {
        Machine { sections: true, ..self }
    }

    fn judged(self) -> Machine {
        let words = "policy=linux-6.18".to_owned();
        Machine { words, release: Some("6.18.0"), ..self }
    }

    /// Machines for a processor.
    pub fn all(arch: Arch) -> Vec<Machine> {
        match arch {
            Arch::X86 => Machine::pcs(),
            Arch::Arm => Machine::arms(),
            Arch::Riscv => Machine::boards(),
        }
    }

    fn boards() -> Vec<Machine> {
        let two = [node(128, 0, 0), node(128, 1, 1)];
        let machines = [
            Machine::new("1 CPU, 128 MiB", 1, 128),
            Machine::new("2 CPUs, 2 nodes, at the same time", 2, 0).nodes(&two).parallel(),
            Machine::new("2 CPUs, 2 nodes, fences", 2, 0).nodes(&two).parallel().with_sections(),
        ];
        machines.map(Machine::shorter).to_vec()
    }

    fn arms() -> Vec<Machine> {
        let two = [node(256, 0, 1), node(256, 2, 3)];
        let four = [node(1024, 0, 1), node(512, 2, 3), node(1024, 4, 5), node(1024, 6, 7)];
        let new = |name, cpus, nodes: &[Node]| Machine::new(name, cpus, 0).nodes(nodes).shorter();
        let third = |machine| Machine { board: "gic-version=3", ..machine };
        vec![
            Machine::new("1 CPU, 128 MiB", 1, 128).counted(),
            new("4 CPUs, 2 nodes, at the same time", 4, &two).parallel(),
            third(new("4 CPUs, 2 nodes, GICv3, fences", 4, &two).parallel().with_sections()),
            new("8 CPUs, 4 nodes, 3.5 GiB", 8, &four),
            Machine::new("instructions", 1, 256).counting(),
        ]
    }

    /// Fewer programs, for processors that are slow to emulate.
    fn shorter(self) -> Machine {
        Machine { words: "programs memory faults period=1000000 rounds=3000".to_owned(), ..self }
    }

    /// The clock counts instructions, and so does the kernel.
    fn counting(self) -> Machine {
        Machine { words: "count".to_owned(), ..self.counted() }
    }

    fn pcs() -> Vec<Machine> {
        let two = [node(512, 0, 1), node(512, 2, 3)];
        let four = [node(1024, 0, 1), node(512, 2, 3), node(1024, 4, 5), node(1024, 6, 7)];
        let no_memory = [node(256, 0, 0), node(0, 1, 1), node(256, 2, 2)];
        let large = [
            node(16 << 10, 0, 1),
            node(16 << 10, 2, 2),
            node(16 << 10, 3, 3),
            node(16 << 10, 4, 4),
        ];
        // The second one's memory lies above 4 GiB, as that of a DIMM does.
        let high = [node(2048, 0, 1), node(1024, 2, 3)];
        let no_cpu = [node(256, 0, 1), Node { mib: 256, cpus: None }];
        vec![
            Machine::new("1 CPU, 128 MiB", 1, 128).counted(),
            Machine::new("1 CPU, 128 MiB, sections", 1, 128).counted().with_sections(),
            Machine::new("2 CPUs, 256 MiB, at the same time", 2, 256).parallel(),
            Machine::new("4 CPUs, 2 nodes", 4, 0).nodes(&two).counted(),
            Machine::new("4 CPUs, 2 nodes, at the same time", 4, 0).nodes(&two).parallel(),
            Machine::new("4 CPUs, 2 nodes, sections", 4, 0).nodes(&two).with_sections(),
            Machine::new("8 CPUs, 4 nodes, 3.5 GiB with a hole", 8, 0).nodes(&four),
            Machine::new("8 CPUs, 4 nodes, sections", 8, 0).nodes(&four).with_sections(),
            Machine::new("3 CPUs, 3 nodes, one without memory", 3, 0).nodes(&no_memory),
            Machine::new("2 CPUs, 2 nodes, one without CPUs", 2, 0).nodes(&no_cpu),
            Machine { most_cpus: 4, ..Machine::new("2 CPUs of 4 that may come", 2, 256) },
            Machine { program: "smallest", ..Machine::new("the tutorial's kernel", 1, 128) },
            Machine::new("1 CPU, 128 MiB", 1, 128).judged(),
            Machine::new("4 CPUs, 2 nodes", 4, 0).nodes(&two).judged(),
            Machine::new("8 CPUs, 4 nodes, 3.5 GiB with a hole", 8, 0).nodes(&four).judged(),
            Machine::new("3 CPUs, 3 nodes, one without memory", 3, 0).nodes(&no_memory).judged(),
            Machine::new("64 GiB, 4 nodes, one worker", 5, 0).nodes(&large).deferred("workers=1"),
            Machine::new("64 GiB, 4 nodes, a worker on each", 5, 0).nodes(&large).deferred(""),
            Machine::new("4 CPUs, 2 nodes, a DIMM comes", 4, 0).nodes(&high).with_dimm(256),
            Machine::new("instructions", 1, 256).counting(),
            Machine::new("instructions, sections", 1, 256).counting().with_sections(),
        ]
    }

    /// A DIMM comes while programs run, leaves and comes back.
    fn with_dimm(self, late_mib: u32) -> Machine {
        Machine { late_mib, words: "dimm period=20000 rounds=3000".to_owned(), ..self.parallel() }
    }

    /// Memory comes online while the kernel runs.
    fn deferred(self, more: &str) -> Machine {
        Machine { words: format!("deferred {more}"), ..self.parallel() }
    }

    /// Whether instructions are counted.
    pub fn counts(&self) -> bool {
        self.words == "count"
    }

    /// Options of the emulator.
    pub fn options(&self) -> Vec<String> {
        let mut all = vec![
            "-smp".to_owned(),
            format!("{},maxcpus={}", self.cpus, self.most_cpus),
            "-m".to_owned(),
            match self.late_mib {
                0 => format!("{}M", self.mib),
                late => format!("{}M,slots=4,maxmem={}M", self.mib, self.mib + late),
            },
        ];
        let mut add = |option: &str, value: String| all.extend([option.to_owned(), value]);
        if !self.board.is_empty() {
            add("-machine", self.board.to_owned());
        }
        for (id, node) in self.nodes.iter().enumerate() {
            let mut text = format!("node,nodeid={id}");
            if node.mib > 0 {
                // Sparse: the host gives a page when the machine writes to it.
                let size = format!("size={}M,reserve=off", node.mib);
                add("-object", format!("memory-backend-ram,id=m{id},{size}"));
                text += &format!(",memdev=m{id}");
            }
            if let Some((from, to)) = node.cpus {
                text += &format!(",cpus={from}-{to}");
            }
            add("-numa", text);
        }
        if self.late_mib > 0 {
            let late = format!("memory-backend-ram,id=late,size={}M,reserve=off", self.late_mib);
            add("-object", late);
        }
        for from in 0..self.nodes.len() {
            for to in 0..from {
                let distance = 10 + 11 * (from - to);
                add("-numa", format!("dist,src={to},dst={from},val={distance}"));
            }
        }
        match self.time {
            Time::Counted => add("-icount", "shift=0,sleep=off".to_owned()),
            Time::Turns => add("-accel", "tcg,thread=single".to_owned()),
            Time::Parallel => add("-accel", "tcg,thread=multi".to_owned()),
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_their_memory_cpus_and_distances() {
        let nodes = [node(256, 0, 0), node(0, 1, 1)];
        let machine = Machine::new("", 2, 0).nodes(&nodes);
        let options = machine.options().join(" ");
        assert!(options.starts_with("-smp 2,maxcpus=2 -m 256M "), "{options}");
        assert!(options.contains("-numa node,nodeid=0,memdev=m0,cpus=0-0 "), "{options}");
        assert!(options.contains("-numa node,nodeid=1,cpus=1-1 "), "{options}");
        assert!(options.contains("-numa dist,src=0,dst=1,val=21 "), "{options}");
    }

    #[test]
    fn nodes_own_every_cpu_once() {
        for machine in Machine::all(Arch::X86).iter().filter(|machine| !machine.nodes.is_empty()) {
            let ranges = machine.nodes.iter().filter_map(|node| node.cpus);
            let cpus: Vec<u32> = ranges.flat_map(|(from, to)| from..=to).collect();
            assert_eq!(cpus, (0..machine.cpus).collect::<Vec<_>>(), "{}", machine.name);
        }
    }
}
