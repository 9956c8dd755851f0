#!/bin/sh
# Runs as root in a fresh Debian, in the folder that has the packages and the programs to compile:
# installs them, uses them, and removes them. $1 is the version that the program must say.
# Writes a line for each part to the file "said": "yes|PART|WHAT" or "NO|PART|WHAT", then "done".
cd "$(dirname "$0")" || exit 1
here=$PWD
version=$1
: >said

# part NAME FUNCTION WHAT
part() {
    # In a subshell of its own, where nothing looks at the status, `set -e` is in force.
    (set -e; "$2") >"$here/log" 2>&1
    if [ $? -eq 0 ]; then
        echo "yes|$1|$3"
    else
        echo "NO|$1|$3: $(tail -n 4 "$here/log" | tr '\n|' '  ')"
    fi >>said
}

# What is there, but for what any installation of anything changes.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
        -o -path "$here" -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \
        -o -path /etc/ld.so.cache \) -prune -o -print | sort
}

install() {
    dpkg --install zonal.deb libzonal0.deb libzonal-dev.deb
    dpkg --verify zonal libzonal0 libzonal-dev
    ldconfig -p | grep libzonal.so.0
}

program() {
    test "$(zonal --version)" = "zonal $version"
    test "$(command -v zonal)" = /usr/bin/zonal
    zonal replay >replayed
    test -s replayed
    zonal policy >/dev/null
    for page in zonal zonal-replay zonal-lab zonal-record; do
        gzip --test "/usr/share/man/man1/$page.1.gz"
    done
    bash -c '. /usr/share/bash-completion/completions/zonal && complete -p zonal'
    test -s /usr/share/zsh/vendor-completions/_zonal
    test -s /usr/share/fish/vendor_completions.d/zonal.fish
}

c() {
    cc -std=c99 -Wall -Wextra -Werror server.c $(pkg-config --cflags --libs zonal) -lpthread \
        -o server
    ldd server | grep 'libzonal.so.0 => /'
    ./server | tail -n 1 | grep -x ok
    ZONAL_RSEQ=off ./server | tail -n 1 | grep -x ok
}

c_static() {
    cc -std=c99 server.c -l:libzonal.a -lgcc_s -lpthread -ldl -lm -o static
    if ldd static | grep libzonal; then exit 1; fi
    ./static | tail -n 1 | grep -x ok
}

cpp() {
    c++ -std=c++17 -Wall -Wextra -Werror -I. containers.cpp \
        $(pkg-config --cflags --libs zonal) -lpthread -o containers
    ./containers | tail -n 1 | grep -x ok
}

# Each function of the header has a page, those that it has inline too.
manual() {
    sed -n 's/^[a-z][A-Za-z0-9_ ]*[ *]\(zonal_[a-z_]*\)(.*/\1/p' /usr/include/zonal.h | sort -u \
        >functions
    test "$(wc -l <functions)" -gt 40
    while read -r name; do
        gzip --test "/usr/share/man/man3/$name.3.gz"
    done <functions
}

again() {
    dpkg --install zonal.deb libzonal0.deb libzonal-dev.deb
    ./server | tail -n 1 | grep -x ok
}

needed() {
    if dpkg --remove libzonal0; then exit 1; fi
    ./server | tail -n 1 | grep -x ok
}

purge() {
    dpkg --purge zonal libzonal-dev libzonal0
    if dpkg --status zonal libzonal0 libzonal-dev; then exit 1; fi
    if ldconfig -p | grep libzonal; then exit 1; fi
    if ./server; then exit 1; fi
    ./static | tail -n 1 | grep -x ok
    files >after
    diff before after
}

files >before
part "installed" install "the three packages, by dpkg, with all that they depend on"
part "zonal" program "its version, a replay of the bundled recording, completions, manual"
part "C" c "examples/server.c by pkg-config, the shared library, sequences and locks"
part "C, static" c_static "examples/server.c with libzonal.a"
part "C++" cpp "tests/cpp/containers.cpp by pkg-config"
part "section 3" manual "a page for each function of zonal.h"
part "installed again" again "over themselves"
part "libzonal0 is needed" needed "not removed while libzonal-dev is there"
part "purged" purge "no file is left, and the linker's list has no libzonal"
echo done >>said
