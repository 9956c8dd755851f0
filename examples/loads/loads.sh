#!/bin/sh
# Real loads, to record, advise on and verify: docs/howto/loads.md.
#
#   sh loads.sh LOAD                          runs one load, without zonal
#   sh loads.sh record DIR                    records every load, DIR/LOAD.zonal (root)
#   sh loads.sh advise DIR [FLAGS]            prints the head of each verdict
#   sh loads.sh verify vm.X=Y LOAD [FLAGS]    tries a setting on one load (root)
#   sh loads.sh data | clean                  makes, and removes, the files of scan, lookups, maps
#
# scan, lookups and maps read files of LOADS_MIB (4096) in LOADS_DATA (/var/tmp/zonal-loads); they
# are for a host whose caches are kept too small, and record, advise do them where the files are
# there.
# buffers is for a host whose per-CPU lists are kept too short: taskset -c 1 sh loads.sh buffers
# ZONAL names the program (zonal). A load whose tools are missing is left out, with a message.
set -eu
loads='build tar dd redis python messaging processes sockets'
zonal=${ZONAL:-zonal}
data=${LOADS_DATA:-/var/tmp/zonal-loads}
mib=${LOADS_MIB:-4096}
if [ -d "$data" ]; then loads="$loads scan lookups maps"; fi

work() {
    dir=$(mktemp -d "/dev/shm/loads.XXXXXX")
    server=
    trap 'kill $server 2>/dev/null || :; rm -rf "$dir"' EXIT
    trap 'exit 143' INT TERM
}

need() {
    for tool; do
        command -v "$tool" >/dev/null || { echo "loads: $tool is not here" >&2; exit 127; }
    done
}

load() {
    work
    case $1 in
    build) # 24 files of C by two compilers at a time
        need cc make
        for i in $(seq 24); do
            { echo '#include <stdio.h>'; echo '#include <stdlib.h>'; echo '#include <math.h>'
              seq -f 'double f%g(double x) { return sqrt(x) + rand(); }' 150
            } >"$dir/f$i.c"
        done
        echo "all: $(seq -s ' ' -f 'f%g.o' 24)" >"$dir/Makefile"
        make -s -j2 -C "$dir" ;;
    tar) # small files through a pipe
        need tar
        for i in 1 2; do
            tar cf - -C /usr/share zoneinfo perl 2>/dev/null |
                tar xf - -C "$dir" 2>/dev/null || true
            rm -rf "${dir:?}"/*
        done ;;
    dd) # one large file, written and removed
        for i in 1 2 3 4; do
            dd if=/dev/zero of="$dir/file" bs=1M count=300 2>/dev/null; rm "$dir/file"
        done ;;
    redis)
        need redis-server redis-benchmark
        redis-server --port 0 --unixsocket "$dir/s" --save '' --appendonly no --dir "$dir" \
            >/dev/null &
        server=$!
        while [ ! -S "$dir/s" ]; do sleep 0.05; done
        redis-benchmark -s "$dir/s" -n 30000 -c 20 -d 2000 -r 50000 -t set,get,lpush -q >/dev/null
        redis-cli -s "$dir/s" shutdown nosave; wait $server ;;
    python) # a pool of processes that touch 8 MiB for each item
        need python3
        python3 - <<'PY'
from multiprocessing import Pool
def item(n):
    block = bytearray(8 << 20)
    return sum(block[::4096]) + n
with Pool(4) as pool:
    pool.map(item, range(400), chunksize=1)
PY
        ;;
    messaging) need perf; perf bench sched messaging -g 4 -l 200 >/dev/null ;;
    processes) i=0; while [ $i -lt 1500 ]; do /bin/true; i=$((i + 1)); done ;;
    sockets) # large messages between two processes: buffers of order 3, allocated here, freed there
        need python3
        python3 - <<'PY'
import os, socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for end in (a, b):
    end.setsockopt(socket.SOL_SOCKET, 32, 64 << 20)  # SO_SNDBUFFORCE, or what is allowed
message = bytes(200_000)
if os.fork() == 0:
    b.send(b"ready")
    while len(b.recv(1 << 20)) > 1:
        pass
    os._exit(0)
a.recv(10)
for _ in range(4000):
    a.send(message)
a.send(b"e")
os.wait()
PY
        ;;
    buffers) # 64 MiB that are mapped, touched and unmapped, twelve times; for one CPU
        need python3
        python3 - <<'PY'
import mmap
page = b"x" * (64 << 8)
for _ in range(12):
    buffer = mmap.mmap(-1, 64 << 20)
    buffer[::4096] = page
    buffer.close()
PY
        ;;
    scan | lookups) # files that are read again and again, in turn or at random, from a cold cache
        need python3
        python3 - "$1" "$data" <<'PY'
import os, random, sys
how, directory = sys.argv[1:]
files = []
for name in sorted(os.listdir(directory)):
    files.append(os.open(os.path.join(directory, name), os.O_RDONLY))
    os.posix_fadvise(files[-1], 0, 0, os.POSIX_FADV_DONTNEED)
BLOCK = 256 << 10
blocks = [(file, at) for file in files for at in range(0, os.fstat(file).st_size, BLOCK)]
order = random.Random(1)
buffer = bytearray(BLOCK)
for _ in range(3):
    if how == "lookups":
        blocks = order.choices(blocks, k=len(blocks))
    for file, at in blocks:
        os.preadv(file, [buffer], at)
PY
        ;;
    maps) # mapped files, of which each page is looked at three times, from a cold cache
        need python3
        python3 - "$data" <<'PY'
import mmap, os, sys
maps = []
for name in sorted(os.listdir(sys.argv[1])):
    file = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    maps.append(mmap.mmap(file, 0, prot=mmap.PROT_READ))
for _ in range(3):
    for pages in maps:
        pages[::4096]
PY
        ;;
    *) echo "loads: '$1': expected one of $loads" >&2; exit 2 ;;
    esac
}

command=${1:-}
case $command in
record)
    mkdir -p "$2"
    for one in $loads; do
        rm -f "$2/$one.zonal"
        "$zonal" record --wait 5m -o "$2/$one.zonal" -- sh "$0" "$one" ||
            echo "loads: $one: left out" >&2
    done ;;
advise)
    files=$2; shift 2
    for one in $loads; do
        [ -f "$files/$one.zonal" ] || continue
        echo "== $one"
        "$zonal" advise "$files/$one.zonal" "$@" | sed '/^$/q'
    done ;;
verify)
    setting=$2; one=$3; shift 3
    "$zonal" verify --wait 5m --setting "$setting" "$@" -- sh "$0" "$one" ;;
data)
    mkdir -p "$data"
    for i in 1 2 3 4; do
        dd if=/dev/urandom of="$data/$i" bs=1M count=$((mib / 4)) 2>/dev/null
    done
    sync ;;
clean) rm -rf "$data" ;;
'' | -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0" ;;
*) load "$command" ;;
esac
