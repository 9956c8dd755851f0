//! How many calls of the allocator the lab plays in a second of CPU time, on one thread:
//!
//! ```sh
//! cargo run --release -p zonal-lab --example speed
//! ```
//! Words choose runs by a part of their name. The last column is that of the run's result, which no
//! change of speed may change.

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

use zonal_lab::machine::Machine;
use zonal_lab::recipe::Recipe;

/// Machine, policy, workload, and how many microseconds are played.
const RUNS: [(&str, &str, &str, u64); 8] = [
    ("broadwell-2017-88@8", "linux-6.18", "churn:hold=32,order=0,lines=0", 20_000),
    ("broadwell-2017-88@8", "zonal", "churn:hold=32,order=0,lines=0", 20_000),
    ("broadwell-2017-88", "linux-6.18", "page-bench", 2_000),
    ("broadwell-2017-88", "linux-6.18", "burst:hold=64,order=0,lines=0", 2_000),
    ("sapphire-2023-224", "zonal", "handoff:lines=0", 1_000),
    ("broadwell-2017-88@8", "linux-6.18", "burst:hold=64,order=0", 10_000),
    ("icelake-2023-128", "linux-6.18", "unix-stream", 2_000),
    ("sapphire-2023-224", "zonal", "handoff", 1_000),
];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    println!("{:>10} {:>9}  run", "calls", "million/s");
    for (machine, policy, workload, run_us) in RUNS {
        let mut recipe = Recipe::new(machine, policy, workload);
        (recipe.warm_us, recipe.run_us) = (run_us / 2, run_us);
        let name = recipe.command();
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let plan = recipe.plan(&|name| Ok(Machine::named(name)?))?;
        // Time of the warm-up and of the machine's start is not that of the calls.
        let (mut looks, mut from) = (0, Duration::ZERO);
        let clock = Clock::start();
        let figures = plan.run_watched(&mut |done, of| {
            looks += 1;
            if 2 * done == of {
                from = clock.spent();
            }
        })?;
        let took = (clock.spent() - from).as_secs_f64();
        let calls = figures.get("calls").unwrap_or_default();
        println!("{calls:>10} {:>9.2}  {name}  {}", calls / took / 1e6, &figures.hash[..12]);
    }
    Ok(())
}

/// CPU time of this thread where the system tells it, else time.
struct Clock {
    began: Instant,
}

impl Clock {
    fn start() -> Clock {
        Clock { began: Instant::now() }
    }

    fn spent(&self) -> Duration {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
        let ns = text.and_then(|text| text.split(' ').next()?.parse().ok());
        ns.map_or_else(|| self.began.elapsed(), Duration::from_nanos)
    }
}
