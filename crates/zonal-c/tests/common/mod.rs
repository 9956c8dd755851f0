//! Compiles and runs programs of C and C++ against the library that cargo has built.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler: the program, and the words by which it says what it is.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    pub program: &'static str,
    pub says: &'static str,
}

/// What the static library asks of the system.
pub const SYSTEM: [&str; 4] = ["-lgcc_s", "-lpthread", "-ldl", "-lm"];
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// This package's directory.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put the library: beside the test's own program.
pub fn library_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_path_buf()
}

impl Compiler {
    /// Whether it is installed; says so if not.
    pub fn is_there(self) -> bool {
        let version = Command::new(self.program).arg("--version").output();
        let is = version.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
            output.status.success() && text.contains(self.says)
        });
        if !is {
            eprintln!("SKIPPED: {} is not installed; its part was not tested", self.program);
        }
        is
    }

    /// Compiles `source` (below the package) with the strictest warnings, links it with the static
    /// library, or the shared one, and runs it. What it printed.
    pub fn run(self, source: &str, standard: &str, shared: bool) -> String {
        let target = tempfile::tempdir().unwrap();
        let program = target.path().join("program");
        let libraries = library_directory();
        let shared_library = format!("-Wl,-rpath,{0},-L{0},-lzonal_c", libraries.display());
        let static_library = libraries.join("libzonal_c.a");
        let library = if shared { Path::new(&shared_library) } else { &static_library };
        self.compile(source, standard, &program, &[library]);
        let output = ran(source, &mut Command::new(&program));
        if shared {
            let mut locks = Command::new(&program);
            locks.env("ZONAL_RSEQ", "off");
            ran(source, &mut locks);
        }
        output
    }

    /// Compiles `source` as [`run`](Self::run) does, but with no library, and runs it with an
    /// argument. What it printed.
    #[allow(dead_code, reason = "not every test program has such a source")]
    pub fn run_with(self, source: &str, standard: &str, argument: &Path) -> String {
        let target = tempfile::tempdir().unwrap();
        let program = target.path().join("program");
        self.compile(source, standard, &program, &[]);
        ran(source, Command::new(&program).arg(argument))
    }

    /// Whether a text is one that the compiler takes under the warnings of the most careful users,
    /// headers included.
    pub fn takes(self, text: &str, ending: &str, standard: &str, careful: &[&str]) {
        if let Err(said) = self.says_of(text, ending, standard, careful) {
            panic!("{}, {standard}: {text}\n{said}", self.program);
        }
    }

    /// What the compiler says against a text under these warnings.
    pub fn says_of(
        self,
        text: &str,
        ending: &str,
        standard: &str,
        careful: &[&str],
    ) -> Result<(), String> {
        let source = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
        std::fs::write(&source, text).unwrap();
        let mut compile = Command::new(self.program);
        compile.arg(format!("-std={standard}")).args(STRICT).arg("-fsyntax-only").args(careful);
        compile.args(["-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wcast-qual", "-Wundef"]);
        compile.arg("-I").arg(root().join("include")).arg(source.path());
        let compiled = compile.output().unwrap();
        compiled.status.success().then_some(()).ok_or_else(|| self::text(&compiled.stderr))
    }

    fn compile(self, source: &str, standard: &str, program: &Path, libraries: &[&Path]) {
        let mut compile = Command::new(self.program);
        compile.arg(format!("-std={standard}")).args(STRICT).args(["-g", "-O1"]);
        compile.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("tests/c"));
        compile.arg(root().join(source)).arg("-o").arg(program);
        let compiled = compile.args(libraries).args(SYSTEM).output().unwrap();
        assert!(
            compiled.status.success(),
            "{}: {source} does not compile:\n{}",
            self.program,
            String::from_utf8_lossy(&compiled.stderr)
        );
    }
}

/// The first block of a language of a page below the package, as a function's body behind these
/// lines; none where the page is not, as in the package's archive.
pub fn block(page: &str, language: &str, before: &str) -> Option<String> {
    let Ok(text) = std::fs::read_to_string(root().join(page)) else {
        eprintln!("SKIPPED: {page} is not here");
        return None;
    };
    let opening = format!("```{language}\n");
    let body = text.split_once(&opening).expect("a block").1.split_once("```").unwrap().0;
    Some(format!("{before}\nvoid documented(void);\nvoid documented(void) {{\n{body}}}\n"))
}

/// What a program printed that ended well.
fn ran(source: &str, program: &mut Command) -> String {
    let ran = program.output().unwrap();
    let (output, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{source}, {program:?}: {}\n{output}{errors}", ran.status);
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
