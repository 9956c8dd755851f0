//! Writes to standard output, also when its reader has gone.

use std::fmt;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cause::of_trace;
use crate::scratch::Scratch;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use zonal_replay::{Phase, Progress};
use zonal_trace::make::MakeError;
use zonal_trace::{Recording, place};

/// Writes a line for people to stderr. A reader that has gone is no error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "zonal: {text}");
}

/// Writes data to stdout. A reader that closed the pipe has seen enough.
pub fn data(text: &str) -> io::Result<()> {
    data_read(text).map(|_is_read| ())
}

/// The same, and whether there was a reader to the end.
pub fn data_read(text: &str) -> io::Result<bool> {
    let written = Stdout.write_all(text.as_bytes()).and_then(|()| Stdout.flush());
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), Unwritten(error))),
    }
}

/// Standard output, for data. The closed pipe of its reader is told from other broken pipes.
#[derive(Debug)]
pub struct Stdout;

/// The reader of standard output has gone.
#[derive(Debug)]
struct ReaderIsGone;

impl fmt::Display for ReaderIsGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of the output has gone")
    }
}

impl std::error::Error for ReaderIsGone {}

/// What could not be written, and why.
#[derive(Debug)]
struct Unwritten(io::Error);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output cannot be written: {}", self.0)
    }
}

impl std::error::Error for Unwritten {}

fn told(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), ReaderIsGone),
        _ => error,
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(told)
    }
    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(told)
    }
}

/// Prints what a command line gets in place of its command: help and the version on stdout, what is
/// wrong with it on stderr. The exit code.
pub fn instead(said: &clap::Error) -> u8 {
    if said.use_stderr() {
        let _ = said.print();
        return 2;
    }
    match said.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            note(&format!("error: {}", Unwritten(error)));
            2
        }
        _ => 0,
    }
}

/// Whether a command ended because the reader of its output has seen enough: it ends quietly then.
pub fn is_enough(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.get_ref().is_some_and(|inner| inner.is::<ReaderIsGone>()))
}

/// A file whose text is known only after long work: that it can be written is found out before, and
/// work that ends early leaves neither half a file nor less than there was.
#[derive(Debug)]
pub struct Target {
    file: PathBuf,
    /// Without one, what is there is no plain file, such as `/dev/stdout`, and is written to.
    part: Option<(PathBuf, Scratch)>,
}

impl Target {
    /// A file at `file`, which is untouched until [`Target::write`].
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn new(file: &Path) -> anyhow::Result<Target> {
        let expected = "expected a writable file in an existing folder";
        check_name(file)?;
        if file.is_dir() {
            anyhow::bail!("{}: is a folder; {expected}", file.display());
        }
        let failed = || format!("{}: {expected}", file.display());
        // What is no plain file is written to; so is a descriptor of this program, such as
        // /dev/stdout, whatever it leads to.
        let own = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"];
        let is_own = own.iter().any(|place| file.starts_with(place));
        if fs::metadata(file).is_ok_and(|there| is_own || !there.is_file()) {
            return Ok(Target { file: file.to_owned(), part: None });
        }
        let plain = place::plain(file).with_context(failed)?;
        let part = place::part(&plain).with_context(failed)?;
        let scratch = Scratch::file(part.clone())?;
        let target = Target { file: plain, part: Some((part.clone(), scratch)) };
        // Not there while the work is done: SIGKILL then leaves nothing.
        fs::write(&part, "").and_then(|()| fs::remove_file(&part)).with_context(failed)?;
        Ok(target)
    }

    /// The same, for what comes of a recording: it is none of its files.
    ///
    /// # Errors
    /// As [`Target::new`], and for a file of the recording.
    pub fn apart_from(recording: &Recording, file: &Path) -> anyhow::Result<Target> {
        if recording.reads_from(file) {
            return Err(MakeError::Overwrites(file.to_owned()).into());
        }
        Target::new(file)
    }

    /// Puts `text` into the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(self, text: &str) -> anyhow::Result<()> {
        self.fill(|file| Ok(file.write_all(text.as_bytes())?))
    }

    /// Lets `fill` write the file.
    ///
    /// # Errors
    /// Those of `fill`, and the system's error.
    pub fn fill<T>(
        self,
        fill: impl FnOnce(&mut BufWriter<fs::File>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let failed = || format!("cannot write {}", self.file.display());
        let place = self.part.as_ref().map_or(&self.file, |(part, _)| part);
        // What is no plain file is not made anew, nor cut.
        let file = fs::File::options().write(true).create(self.part.is_some()).open(place);
        let mut file = BufWriter::new(file.with_context(failed)?);
        let filled = match fill(&mut file) {
            // A recording that cannot be read is no fault of the output.
            Err(error) if of_trace(&error).is_some() => return Err(error),
            filled => filled.with_context(failed)?,
        };
        // What a dropped buffer cannot write is lost without a word.
        file.flush().with_context(failed)?;
        if let Some((part, _)) = &self.part {
            fs::rename(part, &self.file).with_context(failed)?;
        }
        Ok(filled)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.part {
            // Gone already where the text was written.
            let _ = fs::remove_file(part);
        }
    }
}

/// The folder that an output is in.
pub fn folder_of(output: &Path) -> &Path {
    let folder = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Refuses `-` as a name: by habit it stands for standard output.
///
/// # Errors
/// What to write instead.
pub fn check_name(file: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        file.as_os_str() != "-",
        "-: expected the name of a file; /dev/stdout is standard output, ./- a file of that name"
    );
    Ok(())
}

/// Refuses an output in a folder that is not there or cannot be written to, before long work.
///
/// # Errors
/// What was expected, by the output's own name.
pub fn check_folder(flag: &str, output: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(output.as_os_str() != "-", "{flag} -: expected a file's name, such as ./-");
    let folder = folder_of(output);
    let (path, at) = (output.display(), folder.display());
    anyhow::ensure!(folder.is_dir(), "{flag} {path}: there is no folder {at}; make it first");
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
        .map_err(io::Error::from)
        .with_context(|| format!("{flag} {path}: expected a folder that can be written to"))
}

/// So many of them, in words: `1 run`, `2 runs`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Whether two paths lead to one file, or would.
pub fn same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().or_else(|_| absolute(path)).ok();
    one == other || whole(one).is_some_and(|one| whole(other) == Some(one))
}

/// An error and its causes on one line; causes that the text above them quotes are left out.
pub fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// A progress bar on stderr that counts `unit`; invisible where stderr is no terminal.
pub fn progress(what: &'static str, unit: &str, of: Option<u64>) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(of, target);
    let template = match of {
        Some(_) => "{msg:<10} [{bar:40}] {human_pos}/{human_len} UNIT  {eta} left",
        None => "{msg:<10} {spinner} {human_pos} UNIT",
    };
    if let Ok(style) = ProgressStyle::with_template(&template.replace("UNIT", unit)) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

/// How far long work is: a bar on a terminal, and a line on stderr from time to time where there
/// is none, so that a log shows that the work goes on.
#[derive(Debug)]
pub struct Steps {
    what: &'static str,
    unit: &'static str,
    bar: ProgressBar,
    /// When the last line was written, where lines are.
    said: Option<Mutex<Instant>>,
}

/// Time between two lines about the same work.
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Steps {
    /// Work of so many `unit`s.
    pub fn new(what: &'static str, unit: &'static str, of: u64) -> Steps {
        let bar = progress(what, unit, Some(of));
        let said = (!io::stderr().is_terminal()).then(|| Mutex::new(Instant::now()));
        Steps { what, unit, bar, said }
    }

    /// So many more are done.
    pub fn add(&self, more: u64) {
        self.at(self.bar.position() + more, self.bar.length().unwrap_or_default());
    }

    /// So many are done, of so many.
    pub fn at(&self, done: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.set_position(done);
        let Some(said) = &self.said else { return };
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if done == of || said.elapsed() >= LINE_EVERY {
            *said = Instant::now();
            note(&format!("{}: {done} of {of} {}", self.what, self.unit));
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of a library's call, which says how far it is.
#[derive(Default)]
pub struct Bar {
    /// With the phase that it is for.
    bar: Option<(Phase, ProgressBar)>,
}

impl Bar {
    /// The callback that moves it.
    pub fn watch(&mut self) -> impl FnMut(Progress) -> ControlFlow<()> {
        |progress| {
            self.show(progress);
            ControlFlow::Continue(())
        }
    }

    fn show(&mut self, Progress { phase, done, of }: Progress) {
        if self.bar.as_ref().is_none_or(|(of, _)| *of != phase) {
            self.clear();
            let what = match phase {
                Phase::Reading => "reading",
                _ => "replaying",
            };
            self.bar = Some((phase, progress(what, "events", of)));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_position(done);
        }
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_leaves_the_file_that_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        fs::write(&file, "good").unwrap();
        let target = Target::new(&file).unwrap();
        let part = target.part.as_ref().unwrap().0.clone();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing for SIGKILL to leave");
        std::os::unix::fs::symlink("/dev/full", &part).unwrap();
        // Fewer bytes than a buffer holds: only its flush can fail.
        let error = target.write("new").unwrap_err();
        assert!(chain(&error).contains("cannot write"), "{error:#}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "good");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(Target::new(&folder.path().join("no/a.json")).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_no_plain_file_is_written_to_and_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        Target::new(&link).unwrap().write("text").unwrap();
        assert!(!link.metadata().unwrap().is_file());
        let (file, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
        let mine = folder.path().join("link.html.part");
        fs::write(&file, "old").unwrap();
        fs::write(&mine, "the user's").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Target::new(&link).unwrap().write("new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "the user's");
        assert_eq!(folder.path().read_dir().unwrap().count(), 4, "nothing is left behind");
    }

    #[test]
    fn one_of_them_is_no_plural_and_a_dash_no_file() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "run")), ["0 runs", "1 run", "2 runs"]);
        let error = Target::new(Path::new("-")).unwrap_err();
        assert!(error.to_string().contains("/dev/stdout"), "{error}");
        assert!(check_folder("-o", Path::new("-")).unwrap_err().to_string().starts_with("-o -: "));
        assert!(!Path::new("-").exists());
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let cause = io::Error::other("no such file");
        let error = anyhow::Error::new(cause).context("cannot open: no such file");
        assert_eq!(chain(&error), "cannot open: no such file");
        let error = anyhow::anyhow!("deep").context("top");
        assert_eq!(chain(&error), "top: deep");
    }
}
