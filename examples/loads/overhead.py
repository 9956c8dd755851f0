#!/usr/bin/env python3
"""What recording costs a load, event by event (root, Linux with tracefs).

    python3 overhead.py [--seconds 60] [--load touch|file|dd] [--zonal PATH] [VARIANT ...]

A round runs the load once under each variant, in random order; the processor time of each is held
against the run without events of its round. There is at least one round, and of one alone no
interval. The events and filters are those that the program itself names (`zonal record --dry-run`),
in an instance of tracefs that is removed at the end; no setting of the host is changed. `none` is
measured twice: what equal runs differ by is the `again` row. Nobody else may use the machine
meanwhile.
"""
import argparse, os, random, shutil, signal, statistics, subprocess, sys, tempfile, time

TRACEFS = "/sys/kernel/tracing"
USES = {"kmem/mm_page_alloc", "kmem/mm_page_free"}
MOVES = {"kmem/mm_page_alloc_zone_locked", "kmem/mm_page_pcpu_drain", "kmem/mm_page_alloc_extfrag"}
CACHE = {"filemap/mm_filemap_add_to_page_cache", "filemap/mm_filemap_delete_from_page_cache"}
LOCKS = {"lock/contention_begin", "lock/contention_end"}

LOAD = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#define MIB (1 << 20)
int main(int argc, char **argv) {
    if (argc != 2) return 2;
    if (!strcmp(argv[1], "touch"))
        for (int i = 0; i < 6; i++) {
            char *p = mmap(0, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise(p, 64 * MIB, MADV_NOHUGEPAGE);
            for (long at = 0; at < 64 * MIB; at += 4096) p[at] = 1;
            munmap(p, 64 * MIB);
        }
    else if (!strcmp(argv[1], "dd"))
        for (int i = 0; i < 2; i++) {
            if (system("dd if=/dev/zero of=/dev/shm/overhead bs=1M count=150 2>/dev/null"))
                return 1;
            if (system("rm /dev/shm/overhead")) return 1;
        }
    else {
        static char block[MIB];
        int file = memfd_create("load", 0);
        for (int i = 0; i < 150; i++)
            if (write(file, block, MIB) != MIB) return 1;
        if (ftruncate(file, 0)) return 1;
    }
    struct timespec used;
    struct rusage of_others;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    getrusage(RUSAGE_CHILDREN, &of_others);
    struct timeval *parts[] = {&of_others.ru_utime, &of_others.ru_stime};
    for (int i = 0; i < 2; i++) {
        used.tv_sec += parts[i]->tv_sec;
        used.tv_nsec += parts[i]->tv_usec * 1000L;
    }
    printf("%lld\n", used.tv_sec * 1000000000LL + used.tv_nsec);
    return 0;
}
"""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


class Instance:
    """Rings of our own, and the settings of a recorder."""

    def __init__(self, settings):
        self.path = f"{TRACEFS}/instances/overhead-{os.getpid()}"
        self.events = [name[7:-7] for name, _ in settings if name.endswith("/enable")]
        self.filters = {name[7:-7]: value for name, value in settings if name.endswith("/filter")}
        os.mkdir(self.path)
        write(f"{self.path}/tracing_on", "0")
        write(f"{self.path}/trace_clock", "mono")
        self.on, self.ring = set(), None

    def rings(self, kib, overwrite):
        if self.ring != (kib, overwrite):
            write(f"{self.path}/buffer_size_kb", str(kib))
            write(f"{self.path}/options/overwrite", "1" if overwrite else "0")
            self.ring = (kib, overwrite)

    def use(self, wanted):
        for event in sorted(self.on ^ wanted):
            at = f"{self.path}/events/{event}"
            if event in wanted and event in self.filters:
                write(f"{at}/filter", self.filters[event])
            write(f"{at}/enable", "1" if event in wanted else "0")
        self.on = set(wanted)
        write(f"{self.path}/tracing_on", "1" if wanted else "0")

    def clear(self):
        """Empties the rings; returns how many events were in them or had no room."""
        count = 0
        for cpu in os.listdir(f"{self.path}/per_cpu"):
            with open(f"{self.path}/per_cpu/{cpu}/stats") as stats:
                fields = dict(line.split(":", 1) for line in stats if ":" in line)
            count += sum(int(fields[name]) for name in ("entries", "overrun", "dropped events"))
        write(f"{self.path}/trace", "")
        return count

    def remove(self):
        write(f"{self.path}/tracing_on", "0")
        write(f"{self.path}/events/enable", "0")
        os.rmdir(self.path)


def settings(zonal):
    """What the recorder writes to its instance, by its own word."""
    with tempfile.TemporaryDirectory() as folder:
        told = [zonal, "record", "--dry-run", "--no-touch", "-o", f"{folder}/a.zonal"]
        text = subprocess.run(told, check=True, capture_output=True, text=True).stdout
    lines = [line.strip().split(" = ", 1) for line in text.splitlines() if " = " in line]
    return [(name, value) for name, value in lines]


def variants(instance):
    everything = set(instance.events)
    large, small = (64 << 10, False), (256, True)
    over = (64 << 10, True)
    return {
        "none": (set(), large),
        "again": (set(), large),
        "all": (everything, large),
        "all-overwritten": (everything, over),
        "all-small-ring": (everything, small),
        "uses": (USES, large),
        "pages": (USES | MOVES, large),
        "all-without-cache": (everything - CACHE, large),
        "moves": (everything - USES, large),
        "moves-without-cache": (everything - USES - CACHE, large),
        "refills": ({"kmem/mm_page_alloc_zone_locked"}, large),
        "drains": ({"kmem/mm_page_pcpu_drain"}, large),
        "cache": (CACHE, large),
        "cache-added": ({"filemap/mm_filemap_add_to_page_cache"}, large),
        "cache-removed": ({"filemap/mm_filemap_delete_from_page_cache"}, large),
        "locks": (LOCKS, large),
        "rest": (everything - USES - MOVES - CACHE - LOCKS, large),
        "recorder": (set(), large),
        "recorder-moves": (set(), large),
    }


def processor_s(command):
    """The processor time that the load says it took."""
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) / 1e9


def recorded_s(zonal, command, folder, flags):
    """The same, under the recorder."""
    out = f"{folder}/pages"
    run = [zonal, "record", "--no-touch", "--buffer", "64", *flags, "-o", out, "--", *command]
    run = subprocess.run(run, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    shutil.rmtree(out)
    return int(run.stdout) / 1e9


def told(values):
    """Their mean, and where the true one is with 95 %; one value has no interval."""
    mean = f"{statistics.fmean(values):+.1f}"
    if len(values) < 2:
        return f"{mean} %, one round: no interval"
    half = 1.96 * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean} ± {half:.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--load", choices=["touch", "file", "dd"], default="touch")
    parser.add_argument("--zonal", default="zonal")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("variant", nargs="*")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        write(f"{folder}/load.c", LOAD)
        build = ["cc", "-O2", "-D_GNU_SOURCE", "-o", f"{folder}/load", f"{folder}/load.c"]
        subprocess.run(build, check=True)
        command = [f"{folder}/load", args.load]
        instance = Instance(settings(args.zonal))
        try:
            chosen = variants(instance)
            unknown = [name for name in args.variant if name not in chosen]
            if unknown:
                parser.error(f"no variant {unknown[0]}; there are {', '.join(chosen)}")
            names = ["none", "again", *(args.variant or [n for n in chosen if "recorder" not in n])]
            names = list(dict.fromkeys(names))
            times, events = {name: [] for name in names}, {}
            begin = time.monotonic()
            while not times["none"] or time.monotonic() - begin < args.seconds:
                order = draw.sample(names, len(names))
                once = {}
                for name in order:
                    wanted, ring = chosen[name]
                    if name.startswith("recorder"):
                        flags = ["--moves"] if name.endswith("moves") else []
                        once[name] = recorded_s(args.zonal, command, folder, flags)
                        continue
                    instance.rings(*ring)
                    instance.use(wanted)
                    once[name] = processor_s(command)
                    instance.use(set())
                    events[name] = instance.clear()
                for name, value in once.items():
                    times[name].append(value)
        finally:
            instance.remove()
    none = times["none"]
    rounds = "1 round" if len(none) == 1 else f"{len(none)} rounds"
    print(f"{args.load}: {rounds}, {statistics.median(none):.4f} s without events")
    print("| variant | mean of pairs, 95 % | ratio of medians | events |\n|--|--:|--:|--:|")
    for name in names[1:]:
        mean = told([100 * (t / n - 1) for t, n in zip(times[name], none)])
        ratio = 100 * (statistics.median(times[name]) / statistics.median(none) - 1)
        print(f"| {name} | {mean} | {ratio:+.1f} % | {events.get(name, '')} |")


if __name__ == "__main__":
    main()
