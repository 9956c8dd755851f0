//! A sandbox that closes after a pool was made: from one moment on the kernel refuses `membarrier`,
//! or that and `sched_setaffinity`. The pool goes on with its lists under their locks, and no page
//! is lost. And one that was closed before, and does not tell what machine it is on.
//!
//! Each sandbox is a process of its own: a filter stays until the process ends.

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use support::{Owners, Rng, Watchdog, cpus, exit_now, free, move_thread, run_child, thread_id};
use zonal::sys::machine::{Machine, MachineFiles};
use zonal::sys::topology::{SysfsRoots, Topology};
use zonal::{Gfp, Mode, Order, PAGE_SIZE, Pool};

const MIB: usize = 1 << 20;
const POOL_BYTES: usize = 32 * MIB;
const PAGES: usize = POOL_BYTES / PAGE_SIZE;
/// Says to the child which sandbox it is in.
const SANDBOX: &str = "ZONAL_SANDBOX";
const LIMIT: Duration = Duration::from_secs(240);
/// What a child ends with where nothing can be tried: no restartable sequences, no filters, or one
/// CPU.
const EXIT_SKIPPED: i32 = 77;

/// What the kernel refuses from one moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sandbox {
    name: &'static str,
    errno: i32,
    affinity: bool,
    /// In every thread, or in the one that asks only.
    everywhere: bool,
}

const SANDBOXES: [Sandbox; 5] = [
    Sandbox { name: "EPERM", errno: libc::EPERM, affinity: false, everywhere: true },
    Sandbox { name: "ENOSYS", errno: libc::ENOSYS, affinity: false, everywhere: true },
    Sandbox { name: "EPERM, pinned", errno: libc::EPERM, affinity: true, everywhere: true },
    Sandbox { name: "ENOSYS, pinned", errno: libc::ENOSYS, affinity: true, everywhere: true },
    Sandbox { name: "one thread", errno: libc::EPERM, affinity: true, everywhere: false },
];

/// A classic BPF instruction.
const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

impl Sandbox {
    /// Closes it. `false`: this system has no filters.
    fn close(self) -> bool {
        let affinity = if self.affinity { libc::SYS_sched_setaffinity } else { -1 };
        refuse([libc::SYS_membarrier, affinity], self.errno, self.everywhere)
    }
}

/// From now on the kernel refuses these two calls. `false`: this system has no filters.
fn refuse(calls: [libc::c_long; 2], errno: i32, everywhere: bool) -> bool {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let mut steps = [
        // The number of the system call is at offset 0.
        step(LOAD, 0, 0, 0),
        step(EQUAL, calls[0] as u32, 2, 0),
        step(EQUAL, calls[1] as u32, 1, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: (1) takes numbers only; (2) all this process does afterwards is this test.
    let rc = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    let flags = if everywhere { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    // SAFETY: (1) the program is a live value whose steps are a live array of its length.
    let rc =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) };
    rc == 0
}

type Work = Box<dyn FnOnce(&Pool) + Send>;

/// A thread that stays on one CPU and does what it is told.
struct Hand {
    work: Sender<Work>,
    thread: JoinHandle<()>,
}

impl Hand {
    fn on(cpu: u32, pool: &Arc<Pool>) -> Hand {
        let (work, told) = channel::<Work>();
        let pool = Arc::clone(pool);
        let thread = std::thread::spawn(move || {
            assert!(move_thread(thread_id(), &[cpu]));
            told.iter().for_each(|work| work(&pool));
        });
        Hand { work, thread }
    }

    /// Runs `work` there and waits for what it gives.
    fn run<R: Send + 'static>(&self, work: impl FnOnce(&Pool) -> R + Send + 'static) -> R {
        let (done, result) = channel();
        let work = Box::new(move |pool: &Pool| done.send(work(pool)).unwrap());
        self.work.send(work).unwrap();
        result.recv().expect("the thread goes on")
    }
}

/// Pages, until there are no more: an ordinary request empties the lists of all CPUs, and one past
/// the watermarks leaves none.
fn take_all(pool: &Pool) -> Vec<usize> {
    let ask = |gfp| pool.alloc_pages(Order::ZERO, gfp).ok();
    let get = || ask(Gfp::KERNEL).or_else(|| ask(Gfp::KERNEL | Gfp::MEMALLOC));
    std::iter::from_fn(get).map(|page| page.as_ptr() as usize).collect()
}

fn free_all(pool: &Pool, pages: Vec<usize>) {
    pages.into_iter().for_each(|page| free(pool, page, Order::ZERO).unwrap());
}

/// Leaves pages on the lists of the CPU.
fn fill_lists(pool: &Pool) {
    for order in [Order::ZERO, Order::new(2).unwrap()] {
        let blocks: Vec<_> = (0..64).map(|_| pool.alloc(order).unwrap()).collect();
        drop(blocks);
    }
}

/// Blocks of all orders, taken and freed, by owners that are told apart.
fn storm(pool: &Pool, owners: &Owners, me: u32) {
    let mut rng = Rng::new(me.into());
    let mut held = Vec::new();
    for _ in 0..20_000 {
        if rng.below(2) == 0 && !held.is_empty() {
            let (block, order) = held.swap_remove(rng.below(held.len()));
            owners.release(block, order, me);
            free(pool, block, order).unwrap();
        } else if let Some(order) = Order::new((rng.next() as u32 | 1 << 9).trailing_zeros())
            && let Ok(block) = pool.alloc_pages(order, Gfp::KERNEL)
        {
            owners.claim(block.as_ptr() as usize, order, me);
            held.push((block.as_ptr() as usize, order));
        }
        match rng.below(2000) {
            0 => drop(pool.drain_all()),
            1 => drop(pool.held()),
            _ => {}
        }
    }
    for (block, order) in held {
        owners.release(block, order, me);
        free(pool, block, order).unwrap();
    }
}

/// Every page but those that lists of CPUs hold that nobody may look at.
fn take_what_is_there(sandbox: Sandbox, hands: &[Hand], pool: &Pool) -> Vec<usize> {
    let mut pages = hands[0].run(take_all);
    pool.validate().unwrap();
    if sandbox.affinity {
        // The last resort: what other CPUs have on their lists waits for their own threads.
        let waiting = pool.held().lists as usize / PAGE_SIZE;
        assert!(waiting > 0, "nothing was on the lists of other CPUs");
        assert_eq!(pages.len() + waiting, PAGES);
        assert_eq!(pool.free_page_count() as usize, waiting);
        hands[1..].iter().for_each(|hand| hand.run(|pool| drop(pool.alloc(Order::ZERO))));
        pages.extend(hands[0].run(take_all));
    }
    assert_eq!(pages.len(), PAGES, "a false refusal: {:?}", pool.held());
    pages
}

fn live(sandbox: Sandbox) {
    let pool = Pool::builder().size(POOL_BYTES).refresh_every(None).build().unwrap();
    if *pool.mode() != Mode::Rseq || cpus().len() < 2 {
        exit_now(EXIT_SKIPPED);
    }
    let pool = Arc::new(pool);
    let notices = pool.notices().len();
    let mut hands: Vec<_> = cpus().iter().map(|cpu| Hand::on(*cpu, &pool)).collect();
    hands.iter().for_each(|hand| hand.run(fill_lists));
    let closed = match sandbox.everywhere {
        true => sandbox.close(),
        false => hands[0].run(move |_| sandbox.close()),
    };
    if !closed {
        exit_now(EXIT_SKIPPED);
    }
    assert_eq!((pool.mode(), pool.notices().len()), (&Mode::Rseq, notices), "nobody has asked");
    let pages = take_what_is_there(sandbox, &hands, &pool);

    let mode = pool.mode().to_string();
    assert!(mode.starts_with("lock (") && mode.contains("membarrier"), "{mode}");
    assert_eq!(pool.notices().len(), notices + 1);
    let notice = pool.notices().last().unwrap().to_string();
    assert!(notice.contains("membarrier") && notice.contains("lock"), "{notice}");
    assert!(format!("{pool:?}").contains("lock"), "{pool:?}");

    // Freed anywhere, it can be had anywhere.
    let mut rest = pages;
    let share = rest.len() / hands.len();
    for hand in &hands {
        let some = rest.split_off(rest.len() - share.min(rest.len()));
        hand.run(move |pool| free_all(pool, some));
    }
    hands[0].run(move |pool| free_all(pool, rest));
    pool.validate().unwrap();
    let all = hands.last().unwrap().run(take_all);
    assert_eq!(all.len(), PAGES, "{:?}", pool.held());
    hands[0].run(move |pool| free_all(pool, all));

    let owners = Arc::new(Owners::new(&pool));
    std::thread::scope(|scope| {
        for me in 1..=2 * cpus().len() as u32 {
            let (pool, owners) = (&pool, &owners);
            scope.spawn(move || storm(pool, owners, me));
        }
    });
    assert_eq!((owners.errors(), owners.held()), (0, 0));
    pool.validate().unwrap();
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count() as usize, PAGES);
    assert_eq!(pool.held().lists, 0, "what was closed once needs no fence");
    assert_eq!((pool.mode().to_string(), pool.notices().len()), (mode, notices + 1), "for good");
    hands.drain(..).for_each(|Hand { work, thread }| {
        drop(work);
        thread.join().unwrap();
    });
}

/// The other process. Without the variable it is no test.
#[test]
fn sandbox_of_the_child() {
    let Ok(name) = std::env::var(SANDBOX) else { return };
    let _watchdog = Watchdog::new("the sandbox", LIMIT);
    live(*SANDBOXES.iter().find(|sandbox| sandbox.name == name).unwrap());
}

#[test]
fn a_pool_outlives_a_sandbox_that_closes_later() {
    for sandbox in SANDBOXES {
        match run_child("sandbox_of_the_child", SANDBOX, sandbox.name) {
            Some(EXIT_SKIPPED) => eprintln!("SKIPPED: {}", sandbox.name),
            code => assert_eq!(code, Some(0), "{}", sandbox.name),
        }
    }
}

/// The other process. Without the variable it is no test.
#[test]
fn sandbox_without_files() {
    if std::env::var(SANDBOX).is_err() {
        return;
    }
    let _watchdog = Watchdog::new("the sandbox", LIMIT);
    if !refuse([libc::SYS_openat, libc::SYS_openat], libc::EACCES, true) {
        exit_now(EXIT_SKIPPED);
    }
    let pool = Pool::builder().size(POOL_BYTES).build().unwrap();
    assert!(pool.mode().to_string().contains("/sys/devices/system/cpu/possible"));
    let notice = pool.notices().first().unwrap().to_string();
    let said = "cannot read /sys/devices/system/node/online: Permission denied";
    assert!(notice.contains(said) && notice.contains("one node"), "{notice}");
    assert_eq!(take_all(&pool).len(), PAGES);
}

#[test]
fn a_pool_is_made_where_no_file_may_be_read_and_says_that_it_knows_one_node() {
    match run_child("sandbox_without_files", SANDBOX, "files") {
        Some(EXIT_SKIPPED) => eprintln!("SKIPPED: no filters here"),
        code => assert_eq!(code, Some(0)),
    }
}

/// The other process. Without the variable it is no test.
#[test]
fn sandbox_that_tells_nothing() {
    if std::env::var(SANDBOX).is_err() {
        return;
    }
    let _watchdog = Watchdog::new("the sandbox", LIMIT);
    if !refuse([libc::SYS_sysinfo, libc::SYS_uname], libc::EPERM, true) {
        exit_now(EXIT_SKIPPED);
    }
    for prefault in [false, true] {
        let pool = Pool::builder().size(POOL_BYTES).prefault(prefault).build().unwrap();
        assert_eq!(take_all(&pool).len(), PAGES);
    }
    // The folders are not there either.
    let nowhere = std::path::PathBuf::from("/nowhere");
    let files = MachineFiles { meminfo: nowhere.clone(), ..MachineFiles::default() };
    let machine = Machine::read_from(&files);
    assert_eq!((machine.arch.as_str(), machine.kernel_release.as_str()), ("unknown", "unknown"));
    let roots = SysfsRoots { node: nowhere.clone(), cpu: nowhere.clone(), meminfo: nowhere };
    let topology = Topology::read_from(&roots).unwrap();
    assert!(topology.mem_bytes() >= 1 << 40, "nothing is refused for memory that is not known");
}

#[test]
fn a_pool_is_made_where_a_sandbox_does_not_tell_what_machine_this_is() {
    match run_child("sandbox_that_tells_nothing", SANDBOX, "nothing") {
        Some(EXIT_SKIPPED) => eprintln!("SKIPPED: no filters here"),
        code => assert_eq!(code, Some(0)),
    }
}
