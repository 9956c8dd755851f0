//! How often the running thread lost its CPU, and its number.

/// The running thread's number in the system, as in `/proc/self/task`; 0 where it has none.
pub(crate) fn thread() -> u32 {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    #[cfg(not(target_os = "linux"))]
    0
}

/// How often the running thread lost its CPU or slept; 0 where nobody counts.
#[cfg(target_os = "linux")]
pub(crate) fn switches() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: (1) `usage` is a live local of the type that the call fills.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: (1) zeroed, and integers alone: zeros are what is left where the call failed.
    let usage = unsafe { usage.assume_init() };
    (usage.ru_nivcsw + usage.ru_nvcsw).unsigned_abs()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn switches() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_has_one_more() {
        let before = switches();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(!cfg!(target_os = "linux") || switches() > before);
        assert!(!cfg!(target_os = "linux") || thread() != 0);
    }
}
