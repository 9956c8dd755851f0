//! An engine in small: accounts in pages of 16 KiB, behind a log. Transfers change pages in place,
//! in a cache of a sixteenth of the file; after a crash the log is replayed.
//!
//! ```text
//! cargo run --release -p zonal-cache --example engine
//! ```

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use zonal::Pool;
use zonal_cache::{Backing, EngineCache, PageWrite, Pager, WriteFailed};

const PAGE: usize = 16 << 10;
const ACCOUNTS: u64 = 500_000;
const PER_PAGE: u64 = PAGE as u64 / 16;

/// The log: records of an account and its new balance, appended; safe up to a record.
struct Log {
    file: File,
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    waiting: Vec<u8>,
    last: u64,
}

impl Log {
    /// Appends a record in memory. Returns its number.
    fn append(&self, account: u64, balance: u64) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.waiting.extend([account.to_le_bytes(), balance.to_le_bytes()].concat());
        state.last += 1;
        state.last
    }

    /// Returns when every record is safe.
    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if !state.waiting.is_empty() {
            (&self.file).write_all(&state.waiting)?;
            self.file.sync_data()?;
            state.waiting.clear();
        }
        Ok(())
    }
}

/// The accounts' file, which is written after the log.
struct Table {
    file: File,
    log: Arc<Log>,
}

impl Backing for Table {
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, page * PAGE as u64)
    }
    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
        for write in batch {
            self.file.write_all_at(write.bytes, write.page * PAGE as u64)?;
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn before_write(&self, _lsn: u64) -> io::Result<()> {
        self.log.flush() // all of it, which is enough
    }
}

/// Sets a balance: the log first, then the page in place.
fn set(pager: &Pager, log: &Log, account: u64, balance: u64) -> io::Result<()> {
    let mut page = pager.pin_mut(account / PER_PAGE)?; // nobody else has it now
    let lsn = log.append(account, balance);
    page.set_lsn(lsn); // not written before the log is safe up to here
    let at = (account % PER_PAGE) as usize * 16;
    page[at..at + 8].copy_from_slice(&balance.to_le_bytes());
    Ok(())
}

fn balance(pager: &Pager, account: u64) -> io::Result<u64> {
    let page = pager.pin(account / PER_PAGE)?; // shared with other readers
    let at = (account % PER_PAGE) as usize * 16;
    Ok(u64::from_le_bytes(page[at..at + 8].try_into().unwrap()))
}

fn open(directory: &Path) -> Result<(EngineCache, Pager, Arc<Log>), Box<dyn Error>> {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    let table = options.clone().truncate(false).open(directory.join("table"))?;
    let log = options.append(true).open(directory.join("log"))?;
    let log = Arc::new(Log { file: log, state: Mutex::default() });
    let table = Table { file: table, log: Arc::clone(&log) };
    table.file.set_len(ACCOUNTS.div_ceil(PER_PAGE) * PAGE as u64)?;
    let pool = Arc::new(Pool::builder().size(8 << 20).build()?);
    let cache = EngineCache::builder(pool).page_bytes(PAGE).max_pages(32).build()?;
    let pager = cache.open(table)?;
    // What a crash left: every record once more.
    let records = std::fs::read(directory.join("log"))?;
    for record in records.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let mut page = pager.pin_mut(word(0) / PER_PAGE)?;
        let at = (word(0) % PER_PAGE) as usize * 16;
        page[at..at + 8].copy_from_slice(&word(8).to_le_bytes());
    }
    pager.checkpoint()?; // now the table has it all, and the log can go
    log.file.set_len(0)?;
    Ok((cache, pager, log))
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (cache, pager, log) = open(directory.path())?;
    let mut account = 1;
    for step in 0..20_000 {
        account = (account * 7_919 + 104_729) % ACCOUNTS;
        let new = balance(&pager, account)? + step;
        set(&pager, &log, account, new)?;
    }
    log.flush()?; // a commit: the log is safe, pages may follow whenever
    let expected = balance(&pager, account)?;
    println!("{}", cache.stats());
    // A crash: nothing more is written.
    let crashed = tempfile::tempdir()?;
    for name in ["log", "table"] {
        std::fs::copy(directory.path().join(name), crashed.path().join(name))?;
    }
    let (_, pager, _) = open(crashed.path())?;
    assert_eq!(balance(&pager, account)?, expected);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
