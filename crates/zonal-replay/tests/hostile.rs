//! Damaged recordings through all that predicts: each is replayed, or refused in words, within a
//! bound of time and memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use zonal_replay::advise::{Options, advise};
use zonal_replay::verify::{Tried, predict};
use zonal_replay::{Extras, Replay, unwatched};
use zonal_trace::{Part, Recording, TraceWriter, WriterOptions};

const GFP: &str = "1140dca";
const SECOND: u64 = 1_000_000_000;
/// The first frame of the machine.
const START: u64 = 0x1000;
const PAGES: u64 = 8192;
/// What one recording of a few hundred events may take.
const TIME_MAX: Duration = Duration::from_secs(60);
const MEMORY_KIB_MAX: u64 = 1 << 20;

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

fn zoneinfo() -> String {
    let list = |cpu| {
        let numbers = ["count: 0", "high:  200", "batch: 16"];
        let lines = numbers.map(|number| format!("              {number}\n")).concat();
        format!("    cpu: {cpu}\n{lines}")
    };
    let lists = [0, 1].map(list).concat();
    let zone = |(kind, start, pages): (&str, u64, u64)| {
        let free = pages / 2;
        format!(
            "Node 0, zone {kind:>8}
  pages free     {free}
        boost    0
        min      20
        low      25
        high     30
        spanned  {pages}
        present  {pages}
        managed  {pages}
        protection: (0, 0, 0, 0, 0)
  pagesets
{lists}  start_pfn:           {start}
"
        )
    };
    let zones = [("DMA32", START, PAGES / 2), ("Normal", START + PAGES / 2, PAGES / 2)];
    zones.map(zone).concat()
}

/// Lines of a load: files that are read, thrown away by reclaim and read again in large and small
/// blocks, stacks that are freed in parts, compaction, waits.
fn load() -> Vec<String> {
    let mut lines = Vec::new();
    let mut now = SECOND;
    let mut say = |cpu: u64, pid: u64, what: String| {
        now += 40_000;
        lines.push(format!("{now} {cpu} {pid} {what}"));
    };
    for round in 0..3_u64 {
        let base = START + 1024 * round;
        say(0, 45, "kswapd_wake 0 9".to_owned());
        say(0, 9, format!("alloc 0 9 1 {GFP}"));
        for page in 0..128 {
            let pfn = base + page;
            say(0, 9, format!("zone_locked {pfn:x} 0 1 1"));
            say(0, 9, format!("alloc {pfn:x} 0 1 {GFP}"));
            if page.is_multiple_of(64) {
                say(0, 9, format!("cache_add 8 3 {page} 0"));
            }
        }
        say(1, 9, format!("alloc {:x} 9 1 {GFP}", base + 512));
        say(1, 9, "cache_add 8 3 512 9".to_owned());
        say(1, 7, format!("alloc {:x} 2 0 cc0", base + 256));
        for page in 0..4 {
            say(1, 7, format!("free {:x} 0", base + 256 + page));
        }
        say(1, 9, "reclaim_begin 9 0".to_owned());
        say(1, 9, format!("free {:x} 9", base + 512));
        say(1, 9, "cache_remove 8 3 512 9".to_owned());
        say(1, 9, "reclaim_end 512".to_owned());
        say(0, 9, format!("compaction_begin {START} 1"));
        say(0, 9, format!("free {base:x} 0"));
        say(0, 9, format!("compaction_end {START} 1 8"));
        for page in 1..128 {
            say(0, 45, format!("free {:x} 0", base + page));
            say(0, 45, format!("pcpu_drain {:x} 0 1", base + page));
        }
        say(0, 45, "cache_remove 8 3 64 0".to_owned());
        if round == 2 {
            say(0, 9, "cache_remove 8 3 0 0".to_owned());
        }
        say(0, 45, "kswapd_sleep 0".to_owned());
        say(1, 9, "contention_begin 77 1".to_owned());
        say(1, 9, "contention_end 77".to_owned());
    }
    lines
}

fn recording(lines: &[String], files: &[(&str, String)]) -> Result<Recording, String> {
    let part = |(name, text): &(&str, String)| Part::new(*name, text.as_bytes().to_vec());
    let mut parts: Vec<Part> = files.iter().map(part).collect();
    parts.push(Part::new("events.txt", (lines.join("\n") + "\n").into_bytes()));
    Recording::from_parts("hostile", parts).map_err(|error| error.to_string())
}

fn files() -> Vec<(&'static str, String)> {
    let meta = format!(
        "{{\"uname\":\"Linux x 6.18.44 #1 x86_64\",\"cpus\":2,\"t_start_ns\":{SECOND},\
         \"t_end_ns\":{},\"dropped_events\":0}}",
        SECOND + 60_000_000
    );
    let poll = |at: u64| {
        [("DMA32", 3000), ("Normal", 40)].map(|(kind, free)| {
            format!("{at} {at} Z {kind} free={free} boost=0 min=20 low=25 high=30 managed=4096\n")
        })
    };
    let pressure = |total: u64| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
    let vmstat = |steal: u64| {
        format!(
            "pgsteal_kswapd {steal}\npgsteal_direct 0\nworkingset_refault_file {steal}\n\
                 pgpgin {steal}\npgpgout 0\n"
        )
    };
    let sysctl = "vm.min_free_kbytes=160\nvm.watermark_scale_factor=10\n\
                  vm.watermark_boost_factor=15000\nvm.lowmem_reserve_ratio=256\t1\t32\t0\t0\n";
    vec![
        ("meta.json", meta),
        ("zoneinfo.pre", zoneinfo()),
        ("sysctl.txt", sysctl.to_owned()),
        ("vmstat.pre", vmstat(5)),
        ("vmstat.post", vmstat(9000)),
        ("reclaimers.pre", "kcompactd0 7\nkswapd0 10\n".to_owned()),
        ("reclaimers.post", "kcompactd0 9\nkswapd0 900000\n".to_owned()),
        ("pressure-io.pre", pressure(5)),
        ("pressure-io.post", pressure(50_000)),
        ("pressure-memory.pre", pressure(5)),
        ("pressure-memory.post", pressure(9)),
        ("zpoll.txt", [poll(SECOND + 1000), poll(SECOND + 9_000_000)].concat().concat()),
    ]
}

/// How many of the three were done, and the words of the others.
fn through(recording: &Recording) -> (usize, Vec<String>) {
    let only = ["min_free_kbytes", "lowmem_reserve_ratio"].map(str::to_owned);
    let options = Options { limit: None, only: &only };
    let reserve = Tried::parse("vm.lowmem_reserve_ratio=256 256 32 0 0").unwrap();
    let replayed = Replay::new(recording).without_memory(&Extras::default(), &mut unwatched);
    let one = std::slice::from_ref(recording);
    let outcomes = [
        replayed.map(drop),
        advise(recording, &options, &mut unwatched).map(drop),
        predict(one, &reserve, None, &mut unwatched).map(drop),
    ];
    let errors: Vec<String> =
        outcomes.into_iter().filter_map(|done| Some(done.err()?.to_string())).collect();
    (3 - errors.len(), errors)
}

/// The most memory that this process has had, in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

/// Puts numbers that no kernel writes into some of the lines.
fn absurd(random: &mut Random, lines: &mut [String]) {
    let numbers =
        ["0", "1", "10", "11", "255", "ffffffff", "fffffffffffff", "18446744073709551615"];
    for _ in 0..1 + random.below(8) {
        let at = random.below(lines.len());
        let mut words: Vec<String> = lines[at].split(' ').map(str::to_owned).collect();
        let word = 1 + random.below(words.len() - 1);
        if word != 3 {
            words[word] = (*random.one(&numbers)).to_owned();
        }
        lines[at] = words.join(" ");
    }
}

/// Lines that were written twice, left out, or stand elsewhere; times stay in their order.
fn mixed(random: &mut Random, lines: &mut Vec<String>) {
    let split = |line: &String| {
        let (time, rest) = line.split_once(' ').unwrap();
        (time.to_owned(), rest.to_owned())
    };
    let (times, mut rests): (Vec<String>, Vec<String>) = lines.iter().map(split).unzip();
    for _ in 0..1 + random.below(200) {
        let (from, to) = (random.below(rests.len()), random.below(rests.len()));
        match random.below(3) {
            0 => rests[to] = rests[from].clone(),
            1 => rests.swap(from, to),
            _ => {
                let end = from + random.below((rests.len() - from).min(40));
                rests.drain(from..end);
            }
        }
    }
    let both = times.iter().zip(&rests);
    *lines = both.map(|(time, rest)| format!("{time} {rest}")).collect();
}

/// Times far apart, up to the last there is.
fn late(random: &mut Random, lines: &mut [String]) {
    let from = random.below(lines.len());
    let more = *random.one(&[SECOND, 3600 * SECOND, 86_400_000 * SECOND, u64::MAX - 9 * SECOND]);
    for line in &mut lines[from..] {
        let (time, rest) = line.split_once(' ').unwrap();
        *line = format!("{} {rest}", time.parse::<u64>().unwrap().saturating_add(more));
    }
}

/// Other digits in the files beside the stream. The machine stays as large as it is: up to 16 GiB
/// of metadata are taken for one on purpose.
fn other_files(random: &mut Random, files: &mut [(&str, String)]) {
    for _ in 0..1 + random.below(6) {
        let at = 2 + random.below(files.len() - 2);
        let mut bytes = files[at].1.clone().into_bytes();
        let digits: Vec<usize> =
            (0..bytes.len()).filter(|place| bytes[*place].is_ascii_digit()).collect();
        let place = *random.one(&digits);
        match random.below(3) {
            0 => bytes[place] = b'9',
            1 => drop(bytes.splice(place..=place, *b"9999999999999")),
            _ => bytes.truncate(place),
        }
        files[at].1 = String::from_utf8(bytes).unwrap();
    }
}

#[test]
fn a_whole_recording_goes_through_all_that_predicts() {
    let whole = recording(&load(), &files()).unwrap();
    assert_eq!(through(&whole), (3, vec![]));
}

#[test]
fn damaged_recordings_are_replayed_or_refused_within_bounds() {
    let mut done = [0; 4];
    for seed in 1..=120_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut lines, mut files) = (load(), files());
        if seed.is_multiple_of(2) {
            mixed(&mut random, &mut lines);
        }
        match seed % 4 {
            0 => {}
            1 => absurd(&mut random, &mut lines),
            2 => late(&mut random, &mut lines),
            _ => other_files(&mut random, &mut files),
        }
        let Ok(damaged) = recording(&lines, &files) else { continue };
        let begin = Instant::now();
        let through = catch_unwind(AssertUnwindSafe(|| through(&damaged)));
        let Ok((count, errors)) = through else {
            panic!("damage {seed}:\n{}", lines.join("\n"));
        };
        assert!(errors.iter().all(|error| !error.contains("a bug")), "damage {seed}: {errors:?}");
        assert!(begin.elapsed() < TIME_MAX, "damage {seed} took {:?}", begin.elapsed());
        assert!(memory_kib() < MEMORY_KIB_MAX, "damage {seed} took {} KiB", memory_kib());
        done[count] += 1;
    }
    assert!(done[3] >= 40 && done[0] >= 10, "some are replayed, some refused: {done:?}");
}

#[test]
fn a_zonal_file_with_flipped_bits_is_replayed_or_refused_within_bounds() {
    let whole = recording(&load(), &files()).unwrap();
    let (machine, files) = (whole.description(), whole.machine_files().unwrap());
    let mut writer =
        TraceWriter::new(Vec::new(), machine, &files, WriterOptions::default()).unwrap();
    whole.events().for_each(|event| writer.push(&event.unwrap()).unwrap());
    let bytes = writer.finish().unwrap();
    let mut random = Random(7);
    for _ in 0..200 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(damaged.len());
            damaged[at] ^= 1 << random.below(8);
        }
        if random.below(4) == 0 {
            damaged.truncate(random.below(damaged.len()));
        }
        let begin = Instant::now();
        if let Ok(recording) = Recording::from_parts("x", vec![Part::new("trace.zonal", damaged)]) {
            through(&recording);
        }
        assert!(begin.elapsed() < TIME_MAX && memory_kib() < MEMORY_KIB_MAX);
    }
}
