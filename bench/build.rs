//! Compiles the shim over DPDK's inline functions, and only for the peer that needs it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shim/dpdk.c");
    #[cfg(feature = "peer-dpdk")]
    dpdk();
}

#[cfg(feature = "peer-dpdk")]
fn dpdk() {
    let library = match pkg_config::Config::new().cargo_metadata(false).probe("libdpdk") {
        Ok(library) => library,
        Err(_) => panic!("libdpdk was not found by pkg-config (Debian: apt install libdpdk-dev)"),
    };
    let mut shim = cc::Build::new();
    shim.file("shim/dpdk.c").opt_level(3).includes(library.include_paths);
    // DPDK's headers need its configuration first, and the instruction set it was built for.
    shim.flag("-include").flag("rte_config.h").flag_if_supported("-march=corei7");
    shim.compile("zonal_bench_dpdk");
    for path in library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    // The pool, its ring driver, and the environment: not the 60 other libraries.
    for name in ["rte_mempool", "rte_mempool_ring", "rte_ring", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    // A driver registers itself when it is loaded; nothing else refers to it.
    println!("cargo::rustc-link-arg-bin=peer-dpdk=-Wl,--no-as-needed");
    println!("cargo::rustc-link-arg-bin=peer-dpdk=-lrte_mempool_ring");
}
