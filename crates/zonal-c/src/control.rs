//! What is done to a whole pool while it is used.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use zonal::{CpuId, FailAlloc, Sysctl, ZoneKind};

use crate::callbacks::check_outside;
use crate::error::{Failure, border, zonal_error::*};
use crate::input::{choice, string};
use crate::pool::{pool, zonal_pool};

/// Sysctls by their name in /proc/sys.
const SYSCTLS: [(&str, Sysctl); 10] = [
    ("vm.min_free_kbytes", Sysctl::MinFreeKbytes),
    ("vm.watermark_scale_factor", Sysctl::WatermarkScaleFactor),
    ("vm.watermark_boost_factor", Sysctl::WatermarkBoostFactor),
    ("vm.percpu_pagelist_high_fraction", Sysctl::HighFraction),
    ("vm.numa_stat", Sysctl::NumaStat),
    ("vm.stat_interval", Sysctl::StatInterval),
    ("vm.zone_reclaim_mode", Sysctl::ZoneReclaimMode),
    ("vm.min_unmapped_ratio", Sysctl::MinUnmappedRatio),
    ("vm.min_slab_ratio", Sysctl::MinSlabRatio),
    ("vm.defrag_mode", Sysctl::DefragMode),
];
/// With a kind of zone behind it: "vm.lowmem_reserve_ratio.DMA32".
const RESERVE: &str = "vm.lowmem_reserve_ratio.";

/// Changes the bytes that may be in use at once, in whole pages. To lower it, lists are drained and
/// consumers are asked. ZONAL_E_BUSY if more stays in use: the budget is then what stays
/// (zonal_pool_info), and a request finds nothing until pages are freed or it is set again.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_set_budget(pool: *mut zonal_pool, bytes: u64) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        pool.set_budget(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(0)
    })
}

/// Empties all per-CPU lists and depots. Returns the pages moved.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_drain(pool: *mut zonal_pool) -> u64 {
    // SAFETY: (1) C-1.
    border(|| Ok(unsafe { self::pool(pool) }?.drain_all()))
}

/// Returns bytes of resident memory to the operating system, if there are as many, in free blocks
/// of 2 MiB and more. Returns the bytes, or -1.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_trim(pool: *mut zonal_pool, bytes: u64) -> i64 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let given = pool.trim(usize::try_from(bytes).unwrap_or(usize::MAX));
        let given = given.map_err(|error| Failure::new(ZONAL_E_SYSTEM, error.to_string()))?;
        Ok(given as i64)
    })
}

/// Writes a setting by its name: "vm.min_free_kbytes", "vm.lowmem_reserve_ratio.DMA32". The
/// watermarks follow as in a kernel.
///
/// # Safety
/// C-1, C-4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_set_sysctl(
    pool: *mut zonal_pool,
    name: *const c_char,
    value: i64,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        // SAFETY: (1) C-4.
        let name = unsafe { string(name, "sysctl") }?;
        let name = name.ok_or_else(|| Failure::argument("the sysctl's name is null"))?;
        let known = SYSCTLS.iter().find(|(known, _)| *known == name).map(|(_, sysctl)| *sysctl);
        let kind = name.strip_prefix(RESERVE).and_then(ZoneKind::from_name);
        let sysctl = known.or(kind.map(Sysctl::LowmemReserveRatio)).ok_or_else(|| {
            let names: Vec<&str> = SYSCTLS.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            Failure::argument(format!("sysctl '{name}': expected {names} or {RESERVE}KIND"))
        })?;
        pool.set(sysctl, value).map_err(|error| {
            let text = format!("sysctl '{name}' cannot be {value}; expected {}", error.accepted);
            Failure::argument(text)
        })?;
        Ok(0)
    })
}

/// Refreshes a CPU, as the refresh thread does: folds its counters, decays its lists. 1: there was
/// something to do; 0: not, or the CPU has no lists.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_refresh(pool: *mut zonal_pool, cpu: u32) -> u64 {
    // SAFETY: (1) C-1.
    border(|| Ok(u64::from(unsafe { self::pool(pool) }?.refresh(CpuId(cpu)))))
}

/// Stops the refresh thread, if one runs, and starts one: to change its interval, 1 ms or more, and
/// rate, and in a forked child.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_restart_refresh(
    pool: *mut zonal_pool,
    milliseconds: u64,
    trim_rate: u64,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        if milliseconds == 0 {
            return Err(Failure::argument("the refresh interval is 0 ms; expected more"));
        }
        let rate = usize::try_from(trim_rate).unwrap_or(usize::MAX);
        let done = pool.restart_worker(Duration::from_millis(milliseconds), rate);
        done.map_err(|error| Failure::new(ZONAL_E_SYSTEM, error.to_string()))?;
        Ok(0)
    })
}

/// In a forked child: calls consumers again, and starts the threads that reclaim. Only if no other
/// thread of the parent can have been inside a consumer.
///
/// After fork() the child's pool is a complete copy (but for memory that the program brings as
/// MAP_SHARED, which it must not use). Blocks that other threads of the parent had stay handed out.
/// The child has no refresh thread (zonal_restart_refresh).
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_restart_reclaim(pool: *mut zonal_pool) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        check_outside("zonal_restart_reclaim")?;
        let done = pool.restart_reclaim();
        done.map_err(|error| Failure::new(ZONAL_E_SYSTEM, error.to_string()))?;
        Ok(0)
    })
}

/// Waits until all memory of a pool with ZONAL_DEFERRED is online.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_finish_growth(pool: *mut zonal_pool) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let done = pool.finish_growth();
        done.map_err(|error| Failure::new(ZONAL_E_CORRUPT, error.to_string()))?;
        Ok(0)
    })
}

/// Requests fail on purpose from now on, in a pool made with fail_every: none (how 0), the n-th
/// (1), each n-th (2).
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fail_alloc(pool: *mut zonal_pool, how: u32, n: u64) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let kinds = [FailAlloc::never(), FailAlloc::nth(n), FailAlloc::every(n)];
        match pool.set_fail_alloc(choice(how, &kinds, "how")?) {
            true => Ok(0),
            false => Err(Failure::argument(
                "the pool was made without fail_every, so its fast path cannot fail on purpose; \
                 set fail_every to UINT64_MAX when it is made",
            )),
        }
    })
}

/// The node of a page; -1 if it is no page of this pool.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_node_of(pool: *mut zonal_pool, page: *const c_void) -> i64 {
    // SAFETY: (1) C-1.
    border(|| Ok(unsafe { self::pool(pool) }?.node_of(page.cast()).map_or(-1, |n| n.0.into())))
}

/// Walks everything and changes nothing: ZONAL_OK, or ZONAL_E_CORRUPT with the first broken
/// invariant. ZONAL_E_SYSTEM if memory that the program brought is not there any more: unmapped,
/// read-only, or of a file that was cut. Call it while nothing else uses the pool.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_validate(pool: *mut zonal_pool) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        pool.view().check_memory().map_err(|fault| {
            Failure::new(ZONAL_E_SYSTEM, format!("the memory that the pool is made of: {fault}"))
        })?;
        let found = pool.validate();
        found.map_err(|fault| Failure::new(ZONAL_E_CORRUPT, fault.to_string()))?;
        Ok(0)
    })
}
