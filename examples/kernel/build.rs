//! Each processor has its linker script.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "none") {
        println!(
            "cargo::error=a kernel is built for a machine without a system: cargo build --release \
             --target x86_64-unknown-none, or `cargo xtask kernel`, which boots it in QEMU too"
        );
        return;
    }
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = format!("{root}/src/{target}/link.ld");
    println!("cargo::rustc-link-arg-bins=-T{script}");
    println!("cargo::rerun-if-changed={script}");
    // Sections in front of the core, where there are some.
    println!("cargo::rustc-check-cfg=cfg(by_sections)");
    if target == "x86_64" && std::env::var_os("CARGO_FEATURE_SECTIONS").is_some() {
        println!("cargo::rustc-cfg=by_sections");
    }
}
