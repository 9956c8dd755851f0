//! The C++ test-suite: `tests/cpp` under C++17 and all warnings, by g++ and clang++.

mod common;

use common::Compiler;

const GCC: Compiler = Compiler { program: "g++", says: "" };
const CLANG: Compiler = Compiler { program: "clang++", says: "clang" };
const SOURCE: &str = "tests/cpp/containers.cpp";

fn run(compiler: Compiler, standard: &str, shared: bool) {
    if compiler.is_there() {
        let output = compiler.run(SOURCE, standard, shared);
        assert!(output.ends_with("ok\n"), "{output}");
    }
}

#[test]
fn standard_containers_live_in_a_pool() {
    run(GCC, "c++17", false);
    run(GCC, "c++20", true);
}

#[test]
fn standard_containers_live_in_a_pool_when_clang_compiles_them() {
    run(CLANG, "c++17", false);
}

#[test]
fn the_book_is_taken_under_the_warnings_of_careful_users() {
    let before = "#include <vector>\n#include <zonal.hpp>";
    let Some(text) = common::block("../../docs/howto/c.md", "cpp", before) else { return };
    let careful = ["-Wold-style-cast", "-Wnon-virtual-dtor", "-Woverloaded-virtual"];
    for compiler in [GCC, CLANG].into_iter().filter(|compiler| compiler.is_there()) {
        compiler.takes(&text, ".cpp", "c++17", &careful);
    }
}

#[test]
fn the_header_for_c_is_taken_by_every_standard_of_cpp_and_the_other_says_what_it_needs() {
    let text = "#include <zonal.h>\nvoid once();\nvoid once() {\n    zonal_options options;\n    \
                zonal_options_init(&options);\n    (void)zonal_order_for(1);\n}\n";
    for compiler in [GCC, CLANG].into_iter().filter(|compiler| compiler.is_there()) {
        for standard in ["c++98", "c++11", "c++14", "c++17", "c++20", "c++2b"] {
            compiler.takes(text, ".cpp", standard, &[]);
        }
        let said = compiler.says_of("#include <zonal.hpp>\n", ".cpp", "c++14", &[]).unwrap_err();
        assert!(said.contains("zonal.hpp needs C++17: compile with -std=c++17"), "{said}");
    }
}
