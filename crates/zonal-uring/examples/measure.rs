//! Fixed buffers beside plain ones on this kernel, in one run: rounds of four rings in random
//! order, two of each kind, so that the difference of equals is seen beside that of the kinds.
//!
//! `cargo run --release -p zonal-uring --example measure -- [--rounds 41] [--folder /var/tmp]`

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use zonal::{Order, PAGE_SIZE, Pool};
use zonal_uring::{Buffer, Io, Options, Ring};

/// What is measured, and how long.
#[derive(Parser)]
struct Arguments {
    /// Rounds of each ring.
    #[arg(long, default_value_t = 41)]
    rounds: usize,
    /// Operations in a round.
    #[arg(long, default_value_t = 4000)]
    operations: usize,
    /// Folder of the file that is read, on the disk to be measured.
    #[arg(long, default_value = "/var/tmp")]
    folder: PathBuf,
    /// Of the order of rings in a round.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Bytes of the file that is read.
const FILE_BYTES: usize = 64 << 20;
/// The four rings: two with fixed buffers, two without.
const RINGS: [(&str, bool); 4] =
    [("fixed", true), ("fixed again", true), ("plain", false), ("plain again", false)];

/// One kind of work.
struct Load {
    name: &'static str,
    order: Order,
    /// Operations in flight.
    depth: usize,
    target: Target,
}

enum Target {
    /// Reads at random blocks of a file.
    File(Arc<OwnedFd>),
    /// A write to one end of a socket and a read at the other, in turn.
    Socket([Arc<OwnedFd>; 2]),
}

/// Nanoseconds an operation took.
#[derive(Clone, Copy, Default)]
struct Cost {
    wall: f64,
    /// Of this thread, in the program and in the kernel.
    cpu: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let pool = Pool::builder().size(64 << 20).prefault(true).build()?;
    let rings = RINGS.map(|(_, fixed)| Ring::new(&pool, &Options::new().fixed(fixed)));
    let mut rings = rings.into_iter().collect::<Result<Vec<Ring>, _>>()?;
    let mut random = arguments.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    println!(
        "{} rounds of {} operations, seed {}; {}\n",
        arguments.rounds,
        arguments.operations,
        arguments.seed,
        pool.mode()
    );
    println!(
        "| load | fixed, ns of CPU | plain | plain / fixed | fixed / fixed | plain / plain \
              | wall: plain / fixed |"
    );
    println!("|--|--:|--:|--:|--:|--:|--:|");
    for load in loads(&arguments.folder)? {
        let mut costs = [const { Vec::new() }; RINGS.len()];
        for round in 0..arguments.rounds + 1 {
            for ring in shuffled(&mut random) {
                let cost = run(&mut rings[ring], &load, arguments.operations, &mut random)?;
                // The first round warms caches.
                if round > 0 {
                    costs[ring].push(cost);
                }
            }
        }
        report(load.name, &costs);
    }
    Ok(())
}

fn loads(folder: &Path) -> Result<Vec<Load>, Box<dyn Error>> {
    let path = tempfile::NamedTempFile::new_in(folder)?;
    std::fs::write(path.path(), vec![1; FILE_BYTES])?;
    File::open(path.path())?.sync_all()?;
    let cached: Arc<OwnedFd> = Arc::new(File::open(path.path())?.into());
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path.path());
    let small = Order::ZERO;
    let large = Order::for_bytes(64 << 10).ok_or("64 KiB is no block")?;
    let file = |name, order, depth, file: &Arc<OwnedFd>| {
        let target = Target::File(Arc::clone(file));
        Load { name, order, depth, target }
    };
    let mut loads = vec![
        file("4 KiB from the kernel's cache", small, 32, &cached),
        file("64 KiB from the kernel's cache", large, 16, &cached),
    ];
    match direct {
        Ok(direct) => {
            let direct = Arc::new(direct.into());
            loads.push(file("4 KiB from the disk (O_DIRECT)", small, 32, &direct));
            loads.push(file("64 KiB from the disk (O_DIRECT)", large, 16, &direct));
        }
        Err(error) => eprintln!("SKIPPED: O_DIRECT in {}: {error}", folder.display()),
    }
    let ends = || -> Result<[Arc<OwnedFd>; 2], Box<dyn Error>> {
        let (one, other) = UnixStream::pair()?;
        Ok([Arc::new(one.into()), Arc::new(other.into())])
    };
    let socket = |name, order, ends| Load { name, order, depth: 1, target: Target::Socket(ends) };
    loads.push(socket("4 KiB through a socket", small, ends()?));
    loads.push(socket("64 KiB through a socket", large, ends()?));
    Ok(loads)
}

fn run(
    ring: &mut Ring,
    load: &Load,
    operations: usize,
    random: &mut u64,
) -> Result<Cost, Box<dyn Error>> {
    let mut free: Vec<Buffer> = Vec::new();
    for _ in 0..load.depth {
        free.push(ring.pool().alloc(load.order)?.into_owned().into());
    }
    let (start, cpu) = (Instant::now(), cpu_ns());
    let mut begun = 0;
    let mut done = 0;
    while done < operations {
        while begun < operations
            && let Some(buffer) = free.pop()
        {
            begin(ring, load, (begun, random), buffer)?;
            begun += 1;
        }
        ring.wait(1)?;
        while let Some(completion) = ring.next() {
            let bytes = completion.result? as usize;
            if bytes != load.order.bytes() {
                return Err(format!("{}: {bytes} bytes", load.name).into());
            }
            free.extend(completion.buffer);
            done += 1;
        }
    }
    let per = |ns: f64| ns / operations as f64;
    Ok(Cost { wall: per(start.elapsed().as_nanos() as f64), cpu: per(cpu_ns() - cpu) })
}

fn begin(
    ring: &mut Ring,
    load: &Load,
    (number, random): (usize, &mut u64),
    buffer: Buffer,
) -> Result<(), Box<dyn Error>> {
    match &load.target {
        Target::File(file) => {
            let blocks = (FILE_BYTES / load.order.bytes()) as u64;
            let at = next(random) % blocks * load.order.bytes() as u64;
            ring.read(file, buffer, Io::at(at))?;
        }
        // Socket buffers have room for one block, so neither waits for the other.
        Target::Socket(ends) if number % 2 == 0 => {
            ring.write(&ends[0], buffer, Io::stream())?;
        }
        Target::Socket(ends) => {
            ring.read(&ends[1], buffer, Io::stream())?;
        }
    }
    Ok(())
}

/// Medians over the rounds, and medians of the ratios in each round.
fn report(name: &str, costs: &[Vec<Cost>; RINGS.len()]) {
    let of = |ring: usize| median(costs[ring].iter().map(|cost| cost.cpu).collect());
    let ratio = |over: usize, under: usize, what: fn(&Cost) -> f64| {
        let pairs = costs[over].iter().zip(&costs[under]);
        quartiles(pairs.map(|(over, under)| what(over) / what(under)).collect())
    };
    println!(
        "| {name} | {:.0} | {:.0} | {} | {} | {} | {} |",
        of(0),
        of(2),
        ratio(2, 0, |cost| cost.cpu),
        ratio(1, 0, |cost| cost.cpu),
        ratio(3, 2, |cost| cost.cpu),
        ratio(2, 0, |cost| cost.wall),
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn quartiles(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
    format!("{:.2} ({:.2} to {:.2})", at(2), at(1), at(3))
}

/// CPU time of this thread, ns.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 11
}

fn shuffled(random: &mut u64) -> [usize; RINGS.len()] {
    let mut order = std::array::from_fn(|ring| ring);
    for at in (1..order.len()).rev() {
        order.swap(at, (next(random) % (at as u64 + 1)) as usize);
    }
    order
}

const _: () = assert!(FILE_BYTES.is_multiple_of(PAGE_SIZE));
