//! Gives the crate the identity of its build (`identity.rs`) as `ZONAL_BUILD`.

mod identity;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use identity::{Identity, Lock};

fn main() -> io::Result<()> {
    let own = variable("CARGO_MANIFEST_DIR")?;
    let out = variable("OUT_DIR")?;
    // A build directory lies in the workspace that is built, and its lock says what is linked. One
    // elsewhere leaves the workspace of this crate.
    let lock = Lock::above(&out)?.map_or_else(|| Lock::above(&own), |lock| Ok(Some(lock)))?;
    if let Some(lock) = &lock {
        watch(&lock.path);
    }
    let mut identity = Identity::default();
    identity.add("compiler", compiler()?.as_bytes());
    for name in identity::SOURCES {
        match identity::sources(&own, name, lock.as_ref()) {
            Some(sources) => {
                identity::parts(&sources).for_each(|part| watch(&part));
                identity.add_sources(name, &sources)?;
            }
            None => known_by_lock(&mut identity, lock.as_ref(), name),
        }
    }
    for name in identity::COMPUTES {
        known_by_lock(&mut identity, lock.as_ref(), name);
    }
    println!("cargo::rustc-env=ZONAL_BUILD={}", identity.finish());
    Ok(())
}

/// A package whose sources are not at hand: its version and checksum in the lock. Without a lock
/// nobody knows what is linked, so this build is like no other.
fn known_by_lock(identity: &mut Identity, lock: Option<&Lock>, name: &str) {
    match lock.and_then(|lock| lock.entry(name)) {
        Some(entry) => identity.add(name, entry.as_bytes()),
        None => {
            println!(
                "cargo::warning=neither sources nor a Cargo.lock tell which {name} this is: sweeps \
                 of this build do not go on from those of another one"
            );
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let nonce = (now.map_or(0, |now| now.as_nanos()), std::process::id());
            identity.add("nonce", format!("{nonce:?}").as_bytes());
        }
    }
}

fn variable(name: &str) -> io::Result<PathBuf> {
    let value = env::var_os(name).map(PathBuf::from);
    value.ok_or_else(|| io::Error::other(format!("cargo does not say {name}")))
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// The compiler and the standard library that comes with it; not the system that it runs on.
fn compiler() -> io::Result<String> {
    let output = Command::new(variable("RUSTC")?).arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = text.lines().filter(|line| !line.starts_with("host:"));
    Ok(told.collect::<Vec<_>>().join("\n"))
}
