//! The recorder on made-up trees: what it writes where, in which order, and what it leaves.

#[path = "host_tests.rs"]
mod host_tests;

use super::*;
use crate::make::MakeError;
use crate::tracefs::{CACHE_EVENTS, MORE_EVENTS, PAGE_EVENTS, WORKER_EVENT};
use std::io;
use std::ops::ControlFlow;

/// What the made-up kernel says of its zones.
const ZONEINFO: &str = include_str!("../../samples/zlib-make-j4/zoneinfo.pre");

/// A page of a ring with one free, as of `RING_FREE`.
fn page() -> Vec<u8> {
    let mut page = 77_u64.to_le_bytes().to_vec();
    // 4 bytes of head and 20 of payload.
    page.extend(24_u64.to_le_bytes());
    page.extend((5_u32 << 5 | 5).to_le_bytes());
    page.extend(9_u16.to_le_bytes());
    page.extend([0; 2]);
    page.extend(11_u32.to_le_bytes());
    page.extend(0x1234_u64.to_le_bytes());
    page.extend(0_u32.to_le_bytes());
    page.resize(PAGE_BYTES_USUAL, 0);
    page
}

const FORMAT: &str = "name: mm_page_free\nID: 9\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n";

/// What tracefs does when an instance is made: it is full of files at once.
fn make(instance: &Path) -> io::Result<()> {
    fs::create_dir(instance)?;
    let put = |name: &str, content: &[u8]| {
        let path = instance.join(name);
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, content)
    };
    for name in ["tracing_on", "trace_clock", "options/overwrite", "buffer_size_kb"] {
        put(name, b"as it was")?;
    }
    for name in PAGE_EVENTS.iter().chain(&MORE_EVENTS[..2]).chain([&WORKER_EVENT]) {
        put(&format!("events/{}/enable", name.replace(':', "/")), b"0")?;
        put(&format!("events/{}/filter", name.replace(':', "/")), b"none")?;
    }
    put("buffer_total_size_kb", b"2816\n")?;
    put("per_cpu/cpu0/stats", b"entries: 1\noverrun: 0\ndropped events: 3\n")?;
    put("per_cpu/cpu0/trace_pipe_raw", &page())
}

fn options(cold: bool) -> RecordOptions {
    RecordOptions { cold, poll_bytes: 1 << 20, ..RecordOptions::default() }
}

struct Tree {
    root: PathBuf,
    /// Removed with this, by the process that made it.
    _made: Option<tempfile::TempDir>,
}

impl Tree {
    fn new() -> Tree {
        let made = tempfile::tempdir().unwrap();
        let tree = Tree { root: made.path().to_owned(), _made: Some(made) };
        tree.put("proc/zoneinfo", ZONEINFO);
        let buddyinfo = include_str!("../../samples/zlib-make-j4/buddyinfo.pre");
        tree.put("proc/buddyinfo", buddyinfo);
        tree.put("proc/vmstat", "nr_free_pages 50\n");
        tree.put("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
        tree.put("proc/sys/vm/percpu_pagelist_high_fraction", "0\n");
        tree.put("proc/sys/vm/min_free_kbytes", "64\n");
        tree.put("sys/devices/system/cpu/possible", "0-1\n");
        fs::create_dir_all(tree.path("tracefs/instances")).unwrap();
        for name in PAGE_EVENTS.iter().chain(&MORE_EVENTS[..2]) {
            let path = format!("tracefs/events/{}/format", name.replace(':', "/"));
            tree.put(&path, if *name == "kmem:mm_page_free" { FORMAT } else { "name: x\n" });
        }
        tree
    }

    /// A tree that another process made.
    fn at(root: PathBuf) -> Tree {
        Tree { root, _made: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn put(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn begin(&self, cold: bool, journal: &mut dyn Journal) -> Result<Recorder, RecordError> {
        Recorder::begin_at(self.tracefs(), self.roots(), options(cold), journal)
    }

    fn tracefs(&self) -> Tracefs {
        Tracefs::at(&self.path("tracefs")).with(make, |path| fs::remove_dir_all(path))
    }

    fn roots(&self) -> Roots {
        Roots {
            tracefs: Some(self.path("tracefs")),
            proc: self.path("proc"),
            sys: self.path("sys"),
            state: Some(self.path("run/zonal")),
        }
    }

    /// Every file and what it says.
    fn contents(&self) -> Vec<(String, String)> {
        let mut left = vec![self.root.clone()];
        let mut all = Vec::new();
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let name = path.strip_prefix(&self.root).unwrap().display().to_string();
            all.push((name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()));
        }
        all.sort();
        all
    }

    fn instance(&self) -> String {
        format!("tracefs/instances/zonal-{}", std::process::id())
    }
}

/// A journal that is a list of lines, as a guard gets them.
#[derive(Default)]
struct Lines {
    text: String,
    /// The value of the watched file when each line came.
    seen: Vec<String>,
    watched: PathBuf,
}

impl Journal for Lines {
    fn note(&mut self, undo: &Undo) -> io::Result<()> {
        self.seen.push(fs::read_to_string(&self.watched).unwrap_or_default());
        self.text.push_str(&undo.line());
        Ok(())
    }

    fn done(&mut self, path: &Path) -> io::Result<()> {
        self.text.push_str(&format!("done\t{}\n", path.display()));
        Ok(())
    }
}

#[test]
fn what_is_recorded_can_be_read_and_nothing_is_left() {
    let tree = Tree::new();
    let watched = tree.path("proc/sys/vm/percpu_pagelist_high_fraction");
    let mut lines = Lines { watched: watched.clone(), ..Lines::default() };
    let mut recorder = tree.begin(true, &mut lines).unwrap();
    recorder.command(4711);
    // UNDO-1: at each line the value was still the old one.
    assert_eq!(lines.seen, ["0\n", "0\n"]);
    assert_eq!(fs::read_to_string(&watched).unwrap(), "0");
    let own = tree.instance();
    assert_eq!(tree.read(&format!("{own}/trace_clock")), "mono");
    assert_eq!(tree.read(&format!("{own}/options/overwrite")), "0");
    assert_eq!(tree.read(&format!("{own}/tracing_on")), "1");
    let filter = tree.read(&format!("{own}/events/workqueue/workqueue_execute_start/filter"));
    assert_eq!(filter, "function.function == vmstat_update");
    for name in PAGE_EVENTS.iter().chain(&MORE_EVENTS[..2]).chain([&WORKER_EVENT]) {
        let enable = format!("{own}/events/{}/enable", name.replace(':', "/"));
        assert_eq!(tree.read(&enable), "1", "{name}");
    }
    let missing = recorder.notes.iter().filter(|note| note.contains("has no event")).count();
    assert_eq!(missing, MORE_EVENTS.len() - 2);

    let output = tempfile::tempdir().unwrap();
    let recorded = recorder.finish(output.path()).unwrap();
    assert_eq!((recorded.entries, recorded.dropped, recorded.bytes), (1, 3, 4096));
    assert!(recorded.polls.samples > 0, "{:?}", recorded.polls);
    assert_eq!(tree.read(&format!("{own}/tracing_on")), "0");
    let recording = crate::Recording::open(output.path()).unwrap();
    let machine = recording.description();
    assert_eq!((machine.cpus, machine.events_dropped), (Some(2), Some(3)));
    assert_eq!((machine.command_pid, machine.ring_kib), (Some(4711), Some(2816)));
    // The sample inside the trace says what the file says that it was taken from.
    let start = machine.start.as_ref().unwrap();
    let normal = start.zones.iter().find(|zone| zone.kind == "Normal").unwrap();
    assert_eq!(normal.pagesets, machine.zone(0, "Normal").unwrap().pagesets);
    let events: Vec<_> = recording.events().map(Result::unwrap).collect();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, crate::EventKind::Free { pfn: 0x1234, order: 0 });

    // Without drops its number of events is held against the pages when it is read.
    let (kept, whole) = (output.path().join("kept"), Recorded { dropped: 0, ..recorded });
    let rings = output.path().join("rings");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to.join("formats")).unwrap();
        for part in ["", "formats"] {
            for entry in fs::read_dir(from.join(part)).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    fs::copy(entry.path(), to.join(part).join(entry.file_name())).unwrap();
                }
            }
        }
    };
    copy(output.path(), &rings);
    whole.keep(&rings, &kept).unwrap();
    assert!(!rings.exists());
    assert_eq!(crate::Recording::open(&kept).unwrap().events().count(), 1);
    let target = || crate::make::Target::file(output.path().join("a.zonal"));
    let go_on = &mut |_| ControlFlow::Continue(());
    assert_eq!(whole.store(&kept, target(), go_on).unwrap().events, 1);
    copy(&kept, &rings);
    let again = whole.keep(&rings, &kept).unwrap_err().to_string();
    assert!(again.contains("expected a new directory"), "{again}");
    let more = Recorded { entries: 2, ..whole }.store(&kept, target(), go_on);
    let more = more.unwrap_err().to_string();
    assert!(more.contains('2') && more.contains('1'), "{more}");
    let stopped = recorded.store(&kept, target(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(StoreError::Make(MakeError::Stopped))), "{stopped:?}");

    let failures = undo::serve_with(lines.text.as_bytes(), |path| fs::remove_dir_all(path));
    assert_eq!(failures, Vec::<String>::new());
    assert!(!tree.path(&own).exists());
}

#[test]
fn what_the_kernel_has_of_its_pressure_is_kept_before_and_after() {
    let tree = Tree::new();
    let recorder = tree.begin(false, &mut Lines::default()).unwrap();
    tree.put("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
    tree.put("proc/stat", "cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\nintr 1 2\n");
    let output = tempfile::tempdir().unwrap();
    recorder.finish(output.path()).unwrap();
    let times = fs::read_to_string(output.path().join("stat.post")).unwrap();
    assert_eq!(times, "cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\n", "times alone");
    assert!(!output.path().join("stat.pre").exists(), "there was none");
    for (ending, total) in [("pre", "total=5"), ("post", "total=9")] {
        let kept = |name: &str| output.path().join(format!("pressure-{name}.{ending}"));
        assert!(fs::read_to_string(kept("io")).unwrap().contains(total), "{ending}");
        assert!(!kept("memory").exists(), "this kernel has none");
    }
    // Files of a recording's directory are those of a `.zonal` file, too.
    let files = crate::Recording::open(output.path()).unwrap().machine_files().unwrap();
    assert!(files.get("pressure-io.post").is_some() && files.get("stat.post").is_some());
}

#[test]
fn how_far_each_disk_reads_ahead_is_kept() {
    let tree = Tree::new();
    tree.put("sys/block/vda/queue/read_ahead_kb", "8192\n");
    tree.put("sys/block/loop0/queue/read_ahead_kb", "128\n");
    tree.put("sys/block/odd/queue/read_ahead_kb", "many\n");
    let recorder = tree.begin(false, &mut Lines::default()).unwrap();
    let output = tempfile::tempdir().unwrap();
    recorder.finish(output.path()).unwrap();
    let files = crate::Recording::open(output.path()).unwrap().machine_files().unwrap();
    assert_eq!(files.get("read-ahead.txt"), Some("loop0 128\nvda 8192\n".as_bytes()));
}

#[test]
fn settings_are_kept_before_and_after() {
    let tree = Tree::new();
    let recorder = tree.begin(false, &mut Lines::default()).unwrap();
    tree.put("proc/sys/vm/min_free_kbytes", "128\n");
    let output = tempfile::tempdir().unwrap();
    recorder.finish(output.path()).unwrap();
    let files = crate::Recording::open(output.path()).unwrap().machine_files().unwrap();
    for (name, value) in [("sysctl.txt", 64), ("sysctl.post", 128)] {
        let text = String::from_utf8(files.get(name).unwrap().to_vec()).unwrap();
        assert!(text.contains(&format!("vm.min_free_kbytes={value}\n")), "{name}: {text}");
    }
}

#[test]
fn each_step_that_fails_says_so_and_leaves_its_undoing() {
    for (gone, step, part) in [
        ("tracefs/instances", Step::Instance, "make a trace instance"),
        ("proc/zoneinfo", Step::Machine, "read the machine's state"),
        ("proc/sys/vm/percpu_pagelist_high_fraction", Step::ColdStart, "`--no-touch`"),
    ] {
        let tree = Tree::new();
        let path = tree.path(gone);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        let mut lines = Lines::default();
        let error = tree.begin(true, &mut lines).unwrap_err();
        assert_eq!(error.step(), step, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(lines.text.starts_with("remove\t"), "the instance is noted before it is made");
    }
}

#[test]
fn a_guard_that_is_gone_stops_the_recording_before_anything_changes() {
    struct Gone;
    impl Journal for Gone {
        fn note(&mut self, _: &Undo) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn done(&mut self, _: &Path) -> io::Result<()> {
            Ok(())
        }
    }
    let tree = Tree::new();
    let error = tree.begin(true, &mut Gone).unwrap_err();
    assert_eq!(error.step(), Step::Guard);
    assert!(!tree.path(&tree.instance()).exists());
}

#[test]
fn no_touch_changes_nothing_but_its_own_instance() {
    let tree = Tree::new();
    let before = tree.contents();
    let mut lines = Lines::default();
    let recorder = tree.begin(false, &mut lines).unwrap();
    let inside = |name: &str| name.starts_with(&tree.instance());
    let during: Vec<_> = tree.contents().into_iter().filter(|(name, _)| !inside(name)).collect();
    assert_eq!(during, before);
    drop(recorder);
    undo::serve_with(lines.text.as_bytes(), |path| fs::remove_dir_all(path));
    assert_eq!(tree.contents(), before);
}

/// Kernels before 5.14 have another setting, which empties nothing.
#[test]
fn an_older_kernel_is_recorded_with_its_lists_as_they_are() {
    let tree = Tree::new();
    fs::remove_file(tree.path("proc/sys/vm/percpu_pagelist_high_fraction")).unwrap();
    tree.put("proc/sys/vm/percpu_pagelist_fraction", "0\n");
    let text = Touched::by(&tree.roots(), &options(true)).to_string();
    assert!(text.contains("sysctl none"), "{text}");
    let mut lines = Lines::default();
    let recorder = tree.begin(true, &mut lines).unwrap();
    assert!(!lines.text.contains("write"), "{}", lines.text);
    assert!(recorder.notes.iter().any(|note| note.contains("before 5.14")));
    let output = tempfile::tempdir().unwrap();
    recorder.finish(output.path()).unwrap();
    let meta = fs::read_to_string(output.path().join("meta.json")).unwrap();
    assert!(meta.contains("\"cold_pcp_start\": false"), "{meta}");
}

#[test]
fn a_recorder_never_takes_the_temporary_value_for_an_old_one() {
    let tree = Tree::new();
    tree.put("proc/sys/vm/percpu_pagelist_high_fraction", "1000000\n");
    let mut lines = Lines::default();
    let error = tree.begin(true, &mut lines).unwrap_err();
    assert_eq!(error.step(), Step::ColdStart);
    for part in ["it is 1000000", "sysctl vm.percpu_pagelist_high_fraction=0", "`--no-touch`"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!lines.text.contains("write"), "HOST-2: {}", lines.text);
}

#[test]
fn what_is_touched_is_known_before_and_looking_changes_nothing() {
    let tree = Tree::new();
    tree.put("run/zonal/changes", "boot\t\nremove\t/gone\n");
    let before = tree.contents();
    let touched = Touched::by(&tree.roots(), &options(true));
    assert_eq!(tree.contents(), before);
    let text = touched.to_string();
    for part in [
        "percpu_pagelist_high_fraction: 0 -> 1000000 for 2 s, then 0",
        "and watermark_scale_factor as it is, if a zone is boosted then",
        "undo   left by a recorder that was killed: remove /gone",
        "trace_clock = mono",
        "events/kmem/mm_page_alloc/enable = 1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("cannot find tracefs"), "{text}");
    let text = Touched::by(&tree.roots(), &options(false)).to_string();
    assert!(text.contains("sysctl none"), "{text}");
    let nowhere = Roots { tracefs: Some(tree.path("nowhere")), ..tree.roots() };
    let text = Touched::by(&nowhere, &options(false)).to_string();
    assert!(text.contains("cannot find tracefs") && text.contains("mount -t"), "{text}");
    let moves = RecordOptions { uses: false, ..options(false) };
    let text = Touched::by(&tree.roots(), &moves).to_string();
    for event in PAGE_EVENTS {
        let is_on = text.contains(&format!("events/{}/enable = 1", event.replace(':', "/")));
        assert_eq!(is_on, !["kmem:mm_page_alloc", "kmem:mm_page_free"].contains(&event), "{event}");
    }
    for (name, _) in CACHE_EVENTS {
        let event = name.replace(':', "/");
        let other = Tree::new();
        other.put(&format!("tracefs/events/{event}/format"), "name: x\n");
        let is_on = |options: &RecordOptions| {
            let text = Touched::by(&other.roots(), options).to_string();
            text.contains(&format!("events/{event}/enable = 1"))
        };
        assert!(is_on(&options(false)) && !is_on(&moves), "{event}");
    }
    // What was foretold is what happens.
    let recorder = tree.begin(false, &mut Lines::default()).unwrap();
    for (name, value) in touched.settings.iter().filter(|(name, _)| name != "tracing_on") {
        assert_eq!(tree.read(&format!("{}/{name}", tree.instance())), *value, "{name}");
    }
    drop(recorder);
}
