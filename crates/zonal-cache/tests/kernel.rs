//! A device that fails under a real kernel: the file is one of a FUSE file system that this test
//! serves, the kernel caches it or not, and each of its requests fails once. Skipped, with a line
//! on stderr, where file systems cannot be mounted.

mod support;

use std::sync::Arc;
use std::time::Duration;

use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use support::device::{Call, DeviceStore, Fault};
use support::fuse::{Mode, Mount};
use support::program::Program;
use support::{PAGE, end, pattern, pool};
use zonal::Pool;
use zonal_cache::Cache;

const STEPS: u64 = 40;

/// A program on a file whose `nth` request fails. Returns which that was, if there were so many.
fn with_failure(
    pool: &Arc<Pool>,
    mode: Mode,
    direct: bool,
    nth: i64,
    fault: Fault,
) -> std::io::Result<Option<Call>> {
    let model = pattern(7, 15 * PAGE as usize + 77);
    let store = DeviceStore::new(model.clone(), nth as u64);
    let mount = Mount::new(store.clone(), mode)?;
    let cache = Cache::builder(pool.clone())
        .direct(direct)
        .max_pages(6)
        .read_ahead(3)
        .dirty_percent(1, 100)
        .writeback_every(Duration::from_secs(3600))
        .build()?;
    let file = cache.open(mount.file())?;
    store.fail_after(nth, fault);
    let mut program = Program { file, store: store.clone(), model, told: 0 };
    let mut random = Pcg64::seed_from_u64(3);
    for _ in 0..STEPS {
        program.step(&mut random);
    }
    program.end_well(&(mode, direct, nth, fault));
    let failed = store.has_failed().then(|| store.calls()[nth as usize]);
    match failed {
        // The kernel reads again, or ahead; it goes on with a short write, and with one that a
        // signal has interrupted.
        Some(Call::Read) | None => {}
        Some(_) if matches!(fault, Fault::Short | Fault::Errno(libc::EINTR)) => {}
        Some(call) => assert!(program.told > 0, "a failed {call:?} was told to nobody"),
    }
    let Program { file, .. } = program;
    drop(file);
    end(cache, pool);
    Ok(failed)
}

fn whichever_request_fails(mode: Mode, direct: bool, fault: Fault) {
    let pool = pool();
    let mut failed = Vec::new();
    for nth in 0.. {
        match with_failure(&pool, mode, direct, nth, fault) {
            Ok(Some(call)) => failed.push(call),
            Ok(None) => break,
            Err(error) if nth == 0 => {
                eprintln!("skipped: no FUSE file system can be mounted here: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let count = |call| failed.iter().filter(|failed| **failed == call).count();
    eprintln!(
        "{mode:?}, direct {direct}, {fault:?}: {} requests: {} reads, {} writes, {} syncs, {} cuts",
        failed.len(),
        count(Call::Read),
        count(Call::Write),
        count(Call::Sync),
        count(Call::SetLen),
    );
    assert!(count(Call::Write) > 5 && count(Call::Sync) > 3, "{failed:?}");
}

const EIO: Fault = Fault::Errno(libc::EIO);
const ENOSPC: Fault = Fault::Errno(libc::ENOSPC);
const EINTR: Fault = Fault::Errno(libc::EINTR);

#[test]
fn without_a_cache_in_the_kernel_no_failure_is_lost() {
    for fault in [EIO, ENOSPC, EINTR, Fault::Short, Fault::Half(libc::EIO)] {
        whichever_request_fails(Mode::Through, false, fault);
    }
}

#[test]
fn with_a_cache_in_the_kernel_no_failure_is_lost() {
    // Not short: a server that does less than it is asked to breaks the protocol here.
    for fault in [EIO, ENOSPC, EINTR, Fault::Half(libc::EIO)] {
        whichever_request_fails(Mode::WriteBack, false, fault);
    }
}

#[test]
fn past_the_cache_of_the_kernel_no_failure_is_lost() {
    for fault in [EIO, EINTR, Fault::Half(libc::EIO)] {
        whichever_request_fails(Mode::WriteBack, true, fault);
    }
    whichever_request_fails(Mode::Through, true, Fault::Short);
}
