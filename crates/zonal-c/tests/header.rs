//! `include/zonal.h` is what cbindgen makes of the sources.
//!
//! `ZONAL_WRITE_HEADER=1 cargo test -p zonal-c --test header` writes it anew.

use std::path::Path;

/// The files in the order of the header.
const SOURCES: [&str; 10] =
    ["error", "input", "pool", "options", "pages", "range", "control", "consumer", "stats", "text"];

fn generated(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join("src").join(source).with_extension("rs"));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap();
    // C++98 has no comma behind the last value of an enumeration.
    header.replace(",\n}", "\n}")
}

#[test]
fn the_header_is_what_cbindgen_makes_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/zonal.h");
    let header = generated(root);
    if std::env::var_os("ZONAL_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == header,
        "include/zonal.h is not what the sources say: \
         ZONAL_WRITE_HEADER=1 cargo test -p zonal-c --test header"
    );
}
