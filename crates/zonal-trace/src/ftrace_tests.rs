//! Tests of the ftrace text parser, in a file of their own for its length.

use super::*;

const START: &str = "            init-1       [002] d..3.     8.406947: ";

fn event(line: &str) -> Event {
    match parse(line.as_bytes(), 4).unwrap() {
        Parsed::Event(event) => event,
        lost => panic!("{lost:?}"),
    }
}

fn kind_of(text: &str) -> EventKind {
    event(&format!("{START}{text}")).kind
}

#[test]
fn each_kind_is_read() {
    let first = event(
        "            init-1       [002] .....     8.347982: mm_page_alloc: page=00000000ef40d2d1 \
         pfn=0x40c88 order=1 migratetype=0 gfp_flags=GFP_KERNEL_ACCOUNT|__GFP_ZERO",
    );
    assert_eq!((first.time_ns, first.cpu, first.pid), (8_347_982_000, 2, 1));
    let gfp = 0x40_0dc0;
    assert_eq!(first.kind, EventKind::Alloc { pfn: Some(0x40c88), order: 1, migratetype: 0, gfp });
    assert_eq!(
        kind_of("mm_page_free: page=0000000081b99b0d pfn=0x411e2 order=1"),
        EventKind::Free { pfn: 0x411e2, order: 1 }
    );
    assert_eq!(
        kind_of("mm_page_free_batched: page=000000000083d07a pfn=0x3c3f order=0"),
        EventKind::FreeBatched { pfn: 0x3c3f }
    );
    assert_eq!(
        kind_of(
            "mm_page_alloc_zone_locked: page=1 pfn=0x41554 order=3 migratetype=1 percpu_refill=1"
        ),
        EventKind::ZoneLocked { pfn: 0x41554, order: 3, migratetype: 1, percpu_refill: true }
    );
    assert_eq!(
        kind_of("mm_page_pcpu_drain: page=1 pfn=0x41554 order=3 migratetype=1"),
        EventKind::PcpuDrain { pfn: 0x41554, order: 3, migratetype: 1 }
    );
    assert_eq!(
        kind_of("tracing_mark_write: FX before begin"),
        EventKind::Marker("FX before begin".into())
    );
    assert_eq!(kind_of("sched_switch: prev_comm=sh"), EventKind::Other);
    assert_eq!(
        kind_of("workqueue_execute_start: work struct 01: function vmstat_update"),
        EventKind::VmstatUpdate
    );
    assert_eq!(
        kind_of("workqueue_execute_start: work struct 01: function other"),
        EventKind::Other
    );
    assert_eq!(
        kind_of("sched_process_fork: comm=a child_pid=7 pid=1 child_comm=b child_pid=173"),
        EventKind::Fork { child: 173 }
    );
}

#[test]
fn extfrag_is_read() {
    let kind = kind_of(
        "mm_page_alloc_extfrag: page=00000000922a99f3 pfn=0xc000 alloc_order=0 fallback_order=10 \
         pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 \
         change_ownership=1",
    );
    assert_eq!(
        kind,
        EventKind::Extfrag {
            pfn: 0xc000,
            alloc_order: 0,
            fallback_order: 10,
            alloc_migratetype: 0,
            fallback_migratetype: 1,
            change_ownership: true
        }
    );
}

#[test]
fn a_failed_allocation_has_no_page() {
    for pfn in ["0x0", "0", "-1", "18446744073709551615", "0xffffffffffffffff"] {
        let kind = kind_of(&format!(
            "mm_page_alloc: page=(null) pfn={pfn} order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE"
        ));
        assert!(matches!(kind, EventKind::Alloc { pfn: None, order: 9, .. }), "{pfn}");
    }
}

#[test]
fn task_names_may_hold_anything() {
    for start in [
        "          <idle>-0       [001] ..s1.     8.5: ",
        "    kworker/3:0H-29     [001] ..s1.     8.5: ",
        "   a-1 [003] b c-29     [001] ..s1.     8.5: ",
        "             cat-172     (    172) [001] d..3.     8.500000: ",
        "             cat-172     (-------) [001] d..3.     8.500000: ",
        "             cat-172     [001]     8.500000: ",
        "             cat-172     [001] 8.500000000: ",
        "  much-too-long-name-for-a-task-29     [001] ..s1.     8.5: ",
        "cmp:       ls-1992    1.....  8.500000: ",
        "cmp:  a-1 b-2-ls-1992    1d..1.  8.500000000: ",
        "       ls-1992    1dNh3  8.500000: ",
    ] {
        let event = event(&format!("{start}mm_page_free: page=1 pfn=5 order=0"));
        assert_eq!((event.time_ns, event.cpu), (8_500_000_000, 1), "{start}");
        assert_eq!(event.kind, EventKind::Free { pfn: 5, order: 0 });
    }
}

#[test]
fn lost_events_are_told() {
    let lost = parse(b"CPU:1 [LOST 1234 EVENTS]", 4).unwrap();
    assert_eq!(lost, Parsed::Lost { cpu: 1, events: 1234 });
    assert!(parse(b"CPU:9 [LOST 1234 EVENTS]", 4).is_err());
    assert!(parse(b"CPU:1 [LOST x EVENTS]", 4).is_err());
}

#[test]
fn stacks_and_records_of_perf_stand_between_events() {
    for line in [
        "",
        "=> post_alloc_hook (ffffffff8123)",
        " => get_page_from_freelist+0x1/0x2",
        "\tffffffff8123 get_page_from_freelist+0x1 ([kernel.kallsyms])",
    ] {
        assert!(is_remark(line.as_bytes()), "{line:?}");
    }
    // Tasks may be called anything.
    assert!(!is_remark(
        b"           => 1-172     [001] d..3.     8.5: mm_page_free: pfn=5 order=0"
    ));
    assert_eq!(kind_of("<stack trace>"), EventKind::Other);
    assert_eq!(kind_of("<user stack trace>"), EventKind::Other);
    let perf = |record: &str| {
        parse(format!("  sh  1234 [001]  8.5: PERF_RECORD_{record}").as_bytes(), 4).unwrap()
    };
    assert_eq!(perf("LOST lost 120"), Parsed::Lost { cpu: 1, events: 120 });
    assert_eq!(perf("LOST_SAMPLES lost 7"), Parsed::Lost { cpu: 1, events: 7 });
    for other in ["COMM: sh:12/12", "FORK(1:1):(2:2)", "SWITCH OUT", "EXIT(1:1):(1:1)"] {
        assert_eq!(perf(other), Parsed::Nothing, "{other}");
    }
}

#[test]
fn numbers_of_the_option_fields_and_differences_of_times_are_read() {
    assert_eq!(
        kind_of(
            "mm_page_alloc: pfn=0x40c88 (265352) order=0x1 (1) gfp_flags=0x400dc0 (4197824) \
             migratetype=0x2 (2)"
        ),
        EventKind::Alloc { pfn: Some(0x40c88), order: 1, migratetype: 2, gfp: 0x40_0dc0 }
    );
    assert_eq!(
        kind_of(
            "mm_page_alloc_zone_locked: pfn=0x5 (5) order=0x3 (3) migratetype=0x1 (1) \
             percpu_refill=0x1 (1)"
        ),
        EventKind::ZoneLocked { pfn: 5, order: 3, migratetype: 1, percpu_refill: true }
    );
    assert_eq!(
        kind_of("sched_process_fork: parent_pid=0x1 (1) child_comm=b child_pid=0xad (173)"),
        EventKind::Fork { child: 173 }
    );
    let free = EventKind::Free { pfn: 5, order: 0 };
    assert_eq!(kind_of("(+12)    mm_page_free: page=1 pfn=5 order=0"), free);
}

#[test]
fn each_mistake_has_its_message() {
    for (line, part) in [
        ("", "bad line"),
        ("hello", "bad line: expected `TASK-PID [cpu] flags time: event: fields`"),
        ("            init-1       [004] d..3.     8.4: x: ", "expected a cpu below 4, found 4"),
        ("            init-1       [002] d..3.     8,4: x: ", "bad time"),
        ("            init-1       [002] d..3.", "bad time"),
        ("            init-1       [002] d..3. 4711: x: ", "as of the trace_clock `mono`"),
        ("            init-1       [002] d..3. 99999999999999.1: x: ", "bad time"),
        ("            init-1       [002] d..3. 8.4: ", "bad event name"),
        ("            init-1       [002] d..3. 8.4: mm page: ", "bad event name"),
        ("            init-99999999999 [002] d..3. 8.4: x: ", "bad thread id"),
    ] {
        let message = parse(line.as_bytes(), 4).unwrap_err().to_string();
        assert!(message.contains(part), "{line:?}: {message}");
    }
    for (text, part) in [
        ("mm_page_free: page=1 pfn=0x5", "too few fields in `mm_page_free`: expected 3"),
        ("mm_page_free: page=1 pfn=0x5", "found 2; `order` is missing"),
        ("mm_page_free: page=1 pfn=xyz order=0", "not hexadecimal"),
        ("mm_page_free: page=1 pfn=0x order=0", "not hexadecimal"),
        ("mm_page_free: page=1 pfn=0x5 order=14", "found 14"),
        ("mm_page_free: page=1 pfn=0x5 order=0xe", "found 14"),
        ("mm_page_alloc: pfn=0x5 order=1 migratetype=0 gfp_flags=GFP_K", "bad gfp flags"),
        ("mm_page_pcpu_drain: pfn=0x5 order=1 migratetype=-1", "bad migratetype"),
        ("sched_process_fork: comm=a", "`child_pid` is missing"),
    ] {
        let message = parse(format!("{START}{text}").as_bytes(), 4).unwrap_err().to_string();
        assert!(message.contains(part), "{text:?}: {message}");
    }
}

#[test]
fn header_tells_the_cpus() {
    let line = b"# entries-in-buffer/entries-written: 288535/288535   #P:4";
    assert_eq!(header_cpus(line), Some(4));
    assert_eq!(header_cpus(b"# tracer: nop"), None);
}
