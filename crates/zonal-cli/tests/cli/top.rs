//! `zonal top`, in a terminal and in a pipe.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zonal::{Order, Pool};

use crate::program::{refusal, stdout, zonal};
use crate::terminal::Terminal;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../zonal-trace/samples/zlib-make-j4");

/// The texts of a kernel that does not change by itself.
pub struct Kernel(pub tempfile::TempDir);

impl Kernel {
    pub fn new() -> Kernel {
        let kernel = Kernel(tempfile::tempdir().unwrap());
        for name in ["zoneinfo", "buddyinfo"] {
            fs::copy(format!("{SAMPLE}/{name}.pre"), kernel.file(name)).unwrap();
        }
        kernel.counts(1000);
        kernel
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// So many pages are allocated until now.
    pub fn counts(&self, pages: u64) {
        let text = format!("pgalloc_normal {pages}\npgfree 7\nallocstall_normal 0\n");
        fs::write(self.file("vmstat.next"), text).unwrap();
        fs::rename(self.file("vmstat.next"), self.file("vmstat")).unwrap();
    }

    /// The zone that has most pages has so many free ones.
    fn free(&self, pages: u64) {
        let text = fs::read_to_string(format!("{SAMPLE}/zoneinfo.pre")).unwrap();
        let at = text.find("zone   Normal").unwrap();
        let from = at + text[at..].find("  pages free").unwrap();
        let to = from + text[from..].find('\n').unwrap();
        let text = format!("{}  pages free     {pages}{}", &text[..from], &text[to..]);
        fs::write(self.file("zoneinfo.next"), text).unwrap();
        fs::rename(self.file("zoneinfo.next"), self.file("zoneinfo")).unwrap();
    }
}

fn top(kernel: &Kernel) -> Vec<&str> {
    vec!["top", "--proc", kernel.path(), "--every", "50ms"]
}

#[test]
fn in_a_pipe_readings_are_text() {
    let kernel = Kernel::new();
    let text = stdout(&top(&kernel));
    for part in [
        "node 0 Normal",
        "above high",
        "allocated       0 pages/s",
        "out of buddies  -",
        "cpu 0 ",
        "all lock waits  -",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(text.matches("node 0 Normal  ").count(), 1, "one reading");
    let text = stdout(&[&top(&kernel)[..], &["--count", "3", "--mib"]].concat());
    assert_eq!(text.matches("in MiB\n").count(), 3, "{text}");
    assert!(text.contains("allocated       0.0 MiB/s"), "{text}");
    // The machine has pages of 64 KiB by its memory.
    let zoneinfo = fs::read_to_string(kernel.file("zoneinfo")).unwrap();
    let managed = zoneinfo.lines().filter_map(|line| line.trim().strip_prefix("managed"));
    let pages: u64 = managed.map(|pages| pages.trim().parse::<u64>().unwrap()).sum();
    let mib = |text: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with("node 0 Normal  ")).unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    };
    let small = mib(&text);
    fs::write(kernel.file("meminfo"), format!("MemTotal: {} kB\n", pages * 64)).unwrap();
    let large = mib(&stdout(&[&top(&kernel)[..], &["--mib"]].concat()));
    assert!((large / small - 16.0).abs() < 0.01, "{small} {large}");
}

#[test]
fn readings_are_objects_of_json_one_on_a_line() {
    let kernel = Kernel::new();
    let text = stdout(&[&top(&kernel)[..], &["--json", "--count", "2"]].concat());
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 2, "{text}");
    let zones = all[1]["zones"].as_array().unwrap();
    let normal = zones.iter().find(|zone| zone["zone"] == "Normal").unwrap();
    for name in ["free_pages", "min_pages", "low_pages", "high_pages", "managed_pages"] {
        assert!(normal[name].as_u64().unwrap() > 0, "{name}: {normal}");
    }
    let pages = |order: usize| normal["free_blocks"][order].as_u64().unwrap() << order;
    let free: u64 = (0..normal["free_blocks"].as_array().unwrap().len()).map(pages).sum();
    assert!(free > 0 && normal["not_huge_percent"].as_f64().unwrap() < 100.0, "{normal}");
    let listed: u64 =
        normal["lists"].as_array().unwrap().iter().map(|cpu| cpu["count"].as_u64().unwrap()).sum();
    assert_eq!(normal["listed_pages"], listed);
    let rate = |name: &str| {
        let rates = all[1]["rates"].as_array().unwrap();
        rates.iter().find(|rate| rate["name"] == name).unwrap().clone()
    };
    assert_eq!(rate("allocated"), json!({"name": "allocated", "unit": "pages", "per_second": 0.0}));
    assert!(rate("out_of_buddies")["per_second"].is_null(), "nobody counts them");
    assert!(all[1]["note"].is_null() && all[1]["is_pool"] == false, "{}", all[1]);
    assert!(refusal(&[&top(&kernel)[..], &["--json", "--mib"]].concat()).contains("--mib"));
}

#[test]
fn a_reader_that_has_seen_enough_ends_it() {
    let kernel = Kernel::new();
    for form in [&[][..], &["--json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(top(&kernel)).args(["--count", "100000"]).args(form);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut first = [0; 8];
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut first).unwrap();
        drop(output);
        let end = Instant::now() + Duration::from_secs(30);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > end {
                child.kill().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.is_some_and(|status| status.success()), "{form:?}: {status:?}");
    }
}

#[test]
fn a_screen_of_80_by_24_has_everything_and_keys_work() {
    let kernel = Kernel::new();
    let mut terminal = Terminal::run(&top(&kernel), (24, 80), Some("xterm-256color"));
    terminal.wait("the screen", |screen| screen.contains("q end"));
    assert!(terminal.is_drawn());
    let screen = terminal.screen();
    for part in ["node 0 DMA", "above high", "blocks by order", "allocated", "cpu    0", "by node"]
    {
        assert!(screen.contains(part), "{part} is not in\n{screen}");
    }
    let normal = |screen: &str| screen.lines().any(|line| line.starts_with("> node 0 Normal"));
    assert!(normal(&screen), "the largest zone is chosen:\n{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80));
    // Time goes on.
    kernel.counts(900_000_000);
    terminal.wait("a rate", |screen| {
        let line = screen.lines().find(|line| line.starts_with("allocated"));
        line.is_some_and(|line| line.contains('#'))
    });
    kernel.free(5);
    terminal.wait("a low zone", |screen| screen.contains("BELOW MIN"));
    terminal.keys("s");
    terminal.wait("another order", |screen| screen.contains("by pressure"));
    let first = |screen: &str| screen.lines().nth(2).is_some_and(|line| line.contains("Normal"));
    terminal.wait("the low zone first", first);
    terminal.keys("u");
    terminal.wait("MiB", |screen| screen.lines().next().is_some_and(|line| line.contains("MiB")));
    terminal.keys("p");
    terminal.wait("a pause", |screen| screen.contains("PAUSED"));
    terminal.keys("q");
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.is_drawn(), "the terminal is as it was");
}

#[test]
fn screens_of_every_size_are_drawn() {
    let kernel = Kernel::new();
    let mut terminal = Terminal::run(&top(&kernel), (24, 80), Some("xterm"));
    terminal.wait("the screen", |screen| screen.contains("q end"));
    for (rows, columns) in [(50, 200), (10, 40), (1, 1), (2, 300), (24, 80)] {
        terminal.resize(rows, columns);
        let keys = if columns >= 40 { "q end" } else { "" };
        let is_drawn = |screen: &str| !screen.trim().is_empty() && screen.contains(keys);
        terminal.wait(&format!("a screen of {rows} by {columns}"), is_drawn);
    }
    // Ctrl-C.
    terminal.keys("\u{3}");
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.is_drawn());
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_gets_text() {
    let kernel = Kernel::new();
    for term in [None, Some("dumb"), Some("")] {
        let mut terminal = Terminal::run(&top(&kernel), (24, 80), term);
        assert_eq!(terminal.end(), Some(0), "{term:?}");
        let text = String::from_utf8_lossy(&terminal.written).into_owned();
        assert!(text.contains("node 0 Normal") && !text.contains('\u{1b}'), "{term:?}: {text}");
    }
}

fn pool(path: &Path) -> Pool {
    let builder = Pool::builder().size(32 << 20).refresh_every(Some(Duration::from_millis(5)));
    builder.observe(path).build().unwrap()
}

#[test]
fn a_pool_of_a_running_program_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = pool(&path);
    let name = path.to_str().unwrap();
    let pages: Vec<_> = (0..4).map(|_| pool.alloc(Order::MAX).unwrap()).collect();
    let args = ["top", "--pool", name, "--every", "50ms", "--count", "2"];
    let text = stdout(&args);
    let title = format!("pool of process {}", std::process::id());
    assert!(text.starts_with(&title), "{text}");
    for part in ["node 0 Normal", "refilled        0 pages/s", "zone lock waits 0 /s"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let mut terminal = Terminal::run(&args[..5], (24, 80), Some("xterm"));
    terminal.wait("the pool", |screen| screen.contains(&title));
    // The program goes: the last reading stays, and is said to be old.
    drop(pages);
    drop(pool);
    terminal.wait("the end of the program", |screen| screen.contains("expected a file"));
    terminal.keys("q");
    assert_eq!(terminal.end(), Some(0));
}

/// The file of a pool whose process was killed so many seconds after it wrote it the last time.
pub fn of_a_killed_process(path: &Path, seconds: u64) {
    let alive = pool(path);
    let text = fs::read_to_string(path).unwrap();
    drop(alive);
    let mut killed = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let observed = zonal::observed::Observed::parse(&text).unwrap();
    let (process, at_ms) = (observed.process, observed.at_ms);
    let then_ms = at_ms.saturating_sub(seconds * 1000);
    let text =
        text.replacen(&format!("process {process}\n"), &format!("process {}\n", killed.id()), 1);
    fs::write(path, text.replacen(&format!("at_ms {at_ms}\n"), &format!("at_ms {then_ms}\n"), 1))
        .unwrap();
}

#[test]
fn a_pool_of_a_killed_process_is_said_to_be_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let running = pool(&path);
    let name = path.to_str().unwrap();
    let args = ["top", "--pool", name, "--every", "50ms"];
    let mut terminal = Terminal::run(&args, (24, 120), Some("xterm"));
    let title = format!("pool of process {}", std::process::id());
    terminal.wait("the pool", |screen| screen.contains(&title) && !screen.contains("not there"));
    // As a killed process leaves it: the same reading again and again.
    let text = fs::read_to_string(&path).unwrap();
    drop(running);
    fs::write(&path, &text).unwrap();
    terminal.wait("the old figures", |screen| screen.contains("s ago"));
    of_a_killed_process(&directory.path().join("killed"), 0);
    fs::rename(directory.path().join("killed"), &path).unwrap();
    terminal.wait("the killed process", |screen| screen.contains("is not there"));
    terminal.keys("q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn names_in_files_of_others_do_nothing_to_a_terminal() {
    let kernel = Kernel::new();
    for name in ["zoneinfo", "buddyinfo"] {
        let text = fs::read_to_string(kernel.file(name)).unwrap();
        fs::write(kernel.file(name), text.replace("Normal", "\u{1b}[2JN\u{9b}")).unwrap();
    }
    fs::create_dir_all(kernel.file("sys/kernel")).unwrap();
    fs::write(kernel.file("sys/kernel/osrelease"), "6.1\u{1b}]0;x\u{7}\n").unwrap();
    let text = stdout(&top(&kernel));
    assert!(text.contains("node 0 ?[2JN?") && text.contains("Linux 6.1?]0;x?,"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn what_is_no_source_is_refused_by_its_name() {
    let kernel = Kernel::new();
    let strange = kernel.file("strange");
    for text in ["", "zonal-observed 1\n", "zonal-observed 9\nprocess 1\n", "\u{0}\u{1}"] {
        fs::write(&strange, text).unwrap();
        let message = refusal(&["top", "--pool", strange.to_str().unwrap()]);
        assert!(message.contains("strange") && message.contains("expected"), "{message}");
    }
    fs::write(&strange, [0xff, 0xfe]).unwrap();
    assert!(refusal(&["top", "--pool", strange.to_str().unwrap()]).contains("strange"));
    let directory = refusal(&["top", "--pool", kernel.path()]);
    assert!(directory.contains("expected a file"), "{directory}");
    assert!(refusal(&["top", "--proc", "/nowhere"]).contains("/nowhere/zoneinfo"));
    fs::write(kernel.file("buddyinfo"), "x\n").unwrap();
    assert!(refusal(&top(&kernel)).contains("buddyinfo: line 1"));
    assert_eq!(zonal(&["top", "--every", "0"]).status.code(), Some(2));
}
