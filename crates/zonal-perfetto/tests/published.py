"""Holds traces of zonal-perfetto against Perfetto's published definitions.

published.py OURS.perfetto-trace OURS.txt OTHER.perfetto-trace

Decodes OURS by the definitions of the package `perfetto`, compares each event with the lines of
OURS.txt, and looks at the counter tracks. Then writes OTHER as Perfetto's own recorder might have:
the same events in compressed packets, in smaller bundles, among events that tell nothing of pages.
"""

import sys
import zlib

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

NONE = 2**64 - 1


def frame(pfn):
    return "0" if pfn == NONE else f"{pfn:x}"


def fields(event):
    return {field.name: getattr(field, field.WhichOneof("value")) for field in event.field}


def generic(event):
    of = fields(event)
    if event.event_name == "contention_begin":
        return f"contention_begin {of['lock_addr']} {of['flags']}"
    if event.event_name == "contention_end":
        return f"contention_end {of['lock_addr']}"
    cache = {"mm_filemap_add_to_page_cache": "add", "mm_filemap_delete_from_page_cache": "remove"}
    if event.event_name in cache:
        numbers = [of[name] for name in ("s_dev", "i_ino", "index", "order")]
        return f"cache_{cache[event.event_name]} " + " ".join(map(str, numbers))
    if event.event_name == "mm_setup_per_zone_wmarks":
        kinds = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"]
        marks = [of[f"watermark_{mark}"] for mark in ("min", "low", "high")]
        numbers = [of["node_id"], kinds.index(of["name"]), *marks]
        return "watermarks " + " ".join(map(str, numbers))
    if event.event_name == "lost":
        return f"lost {of['events']}"
    assert event.event_name == "other", event
    return "other"


def line(event, symbols):
    kind = event.WhichOneof("event")
    e = getattr(event, kind)
    if kind == "mm_page_alloc":
        return f"alloc {frame(e.pfn)} {e.order} {e.migratetype} {e.gfp_flags:x}"
    if kind == "mm_page_free":
        return f"free {e.pfn:x} {e.order}"
    if kind == "mm_page_free_batched":
        return f"free_batched {e.pfn:x} 0"
    if kind == "mm_page_alloc_zone_locked":
        of_lists = (e.order <= 3 or e.order == 9) and e.migratetype < 3
        return f"zone_locked {e.pfn:x} {e.order} {e.migratetype} {int(of_lists)}"
    if kind == "mm_page_pcpu_drain":
        return f"pcpu_drain {e.pfn:x} {e.order} {e.migratetype}"
    if kind == "mm_page_alloc_extfrag":
        other = e.fallback_order | e.fallback_migratetype << 8 | e.change_ownership << 16
        return f"extfrag {e.pfn:x} {e.alloc_order} {e.alloc_migratetype} {other:x}"
    if kind == "workqueue_execute_start":
        assert symbols[e.function] == b"vmstat_update"
        return "vmstat_update 0"
    if kind == "sched_process_fork":
        return f"fork {e.child_pid}"
    if kind == "print":
        return "marker " + e.buf.replace("\\", "\\\\").replace("\n", "\\n")
    if kind == "mm_vmscan_kswapd_wake":
        return f"kswapd_wake {e.nid} {e.order}"
    if kind == "mm_vmscan_kswapd_sleep":
        return f"kswapd_sleep {e.nid}"
    if kind == "mm_vmscan_direct_reclaim_begin":
        return f"reclaim_begin {e.order} {e.gfp_flags}"
    if kind == "mm_vmscan_direct_reclaim_end":
        return f"reclaim_end {e.nr_reclaimed}"
    if kind == "mm_compaction_begin":
        return f"compaction_begin {e.zone_start} {e.sync}"
    if kind == "mm_compaction_end":
        return f"compaction_end {e.zone_start} {e.sync} {e.status}"
    return generic(e)


def known(message, path="Trace"):
    """Nothing in a message but what the definitions name."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    unknown = UnknownFieldSet(message)
    assert len(unknown) == 0, (path, [field.field_number for field in unknown])
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value if hasattr(value, "__len__") else [value]
            for inner in values:
                known(inner, f"{path}.{field.name}")


def check(trace, expected):
    symbols, found, tracks, values = {}, [], {}, {}
    for packet in trace.packet:
        for symbol in packet.interned_data.kernel_symbols:
            symbols[symbol.iid] = symbol.str
        if packet.HasField("ftrace_events"):
            cpu = packet.ftrace_events.cpu
            for event in packet.ftrace_events.event:
                pid = event.pid - 2**32 if event.pid >= 2**31 else event.pid
                found.append((cpu, f"{event.timestamp} {cpu} {pid} {line(event, symbols)}"))
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        event = packet.track_event
        if event.type == pb.TrackEvent.TYPE_COUNTER:
            assert tracks[event.track_uuid].HasField("counter"), event
            values.setdefault(event.track_uuid, []).append((packet.timestamp, event.counter_value))
    found = [text for _, text in sorted(found, key=lambda pair: pair[0])]
    expected = sorted(expected, key=lambda text: int(text.split()[1]))
    assert len(found) == len(expected), (len(found), len(expected))
    for ours, theirs in zip(found, expected):
        assert ours == theirs, (ours, theirs)
    names = {tracks[uuid].name: points for uuid, points in values.items()}
    zones = ("free", "watermark min", "watermark low", "watermark high", "on lists")
    for name in (*zones, "pages refilled", "pages drained"):
        assert names.get(name), name
    for uuid in values:
        assert tracks[tracks[uuid].parent_uuid].name, tracks[uuid]
    refilled = sum(1 << int(t.split()[5]) for t in expected
                   if t.split()[3] == "zone_locked" and t.split()[7] == "1")
    assert names["pages refilled"][-1][1] == refilled, (names["pages refilled"][-1], refilled)
    events = len(found)
    points = sum(map(len, values.values()))
    print(f"{events} events and {points} points of {len(values)} counters agree")


def other(trace):
    """The same trace as others would write it."""
    result = pb.Trace()
    for packet in trace.packet:
        if not packet.HasField("ftrace_events"):
            result.packet.add().CopyFrom(packet)
            continue
        events = packet.ftrace_events.event
        for begin in range(0, len(events), 1000):
            inner = pb.Trace()
            part = inner.packet.add()
            part.CopyFrom(packet)
            del part.ftrace_events.event[:]
            for event in events[begin:begin + 1000]:
                switch = part.ftrace_events.event.add(timestamp=event.timestamp, pid=event.pid)
                switch.sched_switch.next_comm = "somebody"
                part.ftrace_events.event.add().CopyFrom(event)
            result.packet.add().compressed_packets = zlib.compress(inner.SerializeToString())
    return result


def main(ours, text, theirs):
    trace = pb.Trace()
    with open(ours, "rb") as file:
        trace.ParseFromString(file.read())
    for at in (0, 1, 2, 3, 4, len(trace.packet) // 2, len(trace.packet) - 1):
        known(trace.packet[at])
    bundle = next(p for p in trace.packet if p.HasField("ftrace_events"))
    known(bundle)
    with open(text) as file:
        check(trace, [line.rstrip("\n") for line in file if not line.startswith("#")])
    with open(theirs, "wb") as file:
        file.write(other(trace).SerializeToString())


if __name__ == "__main__":
    main(*sys.argv[1:])
