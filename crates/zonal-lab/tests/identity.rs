//! The identity of a build, which rows of sweeps have in their version.

#[path = "../build/identity.rs"]
#[expect(dead_code, reason = "the build script uses the rest")]
mod identity;

use std::fs;
use std::path::{Path, PathBuf};

use identity::{COMPUTES, Identity, Lock, SOURCES, sources};

fn own() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The identity of sources in this directory, with no lock and no compiler.
fn of_sources(lab: &Path) -> String {
    let mut identity = Identity::default();
    for name in SOURCES {
        let root = sources(lab, name, None).expect("the sources are there");
        identity.add_sources(name, &root).unwrap();
    }
    identity.finish()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn the_same_sources_elsewhere_have_the_same_identity_and_any_change_another_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in SOURCES {
        let from = sources(&own(), name, None).unwrap();
        copy(&from.join("src"), &folder.path().join(name).join("src"));
    }
    let lab = folder.path().join("zonal-lab");
    copy(&own().join("build"), &lab.join("build"));
    copy(&own().join("machines"), &lab.join("machines"));
    let before = of_sources(&own());
    assert_eq!(of_sources(&lab), before);

    // One digit of one load, of a policy, of a machine, of what reads recordings.
    let loads = fs::read_dir(lab.join("src/workload")).unwrap().map(|each| each.unwrap().path());
    let load = loads.filter(|path| path.is_file()).min().expect("a load");
    let machine = fs::read_dir(lab.join("machines")).unwrap().next().unwrap().unwrap().path();
    for file in [
        load,
        machine,
        folder.path().join("zonal-core/src/lib.rs"),
        folder.path().join("zonal-trace/src/lib.rs"),
        folder.path().join("zonal-text/src/lib.rs"),
    ] {
        let text = fs::read(&file).unwrap();
        let mut changed = text.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs::write(&file, &changed).unwrap();
        assert_ne!(of_sources(&lab), before, "{}", file.display());
        fs::write(&file, &text).unwrap();
    }
    let (old, new) = (lab.join("src/lib.rs"), lab.join("src/lab.rs"));
    fs::rename(&old, &new).unwrap();
    fs::write(&old, fs::read(&new).unwrap()).unwrap();
    assert_ne!(of_sources(&lab), before, "a file more");
    fs::remove_file(&new).unwrap();
    for unread in ["src/lib.rs~", "src/.lib.rs.swp", "src/#lib.rs#", "Cargo.toml", "README.md"] {
        fs::write(lab.join(unread), "x").unwrap();
    }
    assert_eq!(of_sources(&lab), before, "no build reads them, or cargo writes them anew");
}

#[test]
fn sources_that_cargo_unpacked_are_those_of_the_version_in_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("zonal-lab-0.1.0");
    for name in ["zonal-core-0.1.0", "zonal-core-0.1.1"] {
        fs::create_dir_all(folder.path().join(name).join("src")).unwrap();
        fs::write(folder.path().join(name).join("src/lib.rs"), name).unwrap();
    }
    let lock = |versions: &[&str]| {
        let entry = |version: &&str| {
            format!("[[package]]\nname = \"zonal-core\"\nversion = \"{version}\"\n")
        };
        let text: String = versions.iter().map(entry).collect();
        fs::write(folder.path().join("Cargo.lock"), text).unwrap();
        Lock::above(folder.path()).unwrap()
    };
    let found = |versions: &[&str]| sources(&lab, "zonal-core", lock(versions).as_ref());
    assert_eq!(found(&["0.1.1"]), Some(folder.path().join("zonal-core-0.1.1")));
    assert_eq!(found(&["0.1.2"]), None, "the lock tells its checksum");
    assert_eq!(found(&["0.1.0", "0.2.0"]), None, "nobody knows which of them");
    assert_eq!(sources(&lab, "zonal-core", None), None);
}

#[test]
fn what_a_row_is_computed_with_is_known_by_the_lock() {
    let lock = Lock::above(&own()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = "[[package]]\nname = \"rand_pcg\"\nversion = \"0.10.2\"\nchecksum = \"ab\"\n\n\
                [[package]]\nname = \"rand_pcg_more\"\nversion = \"1.0.0\"\n";
    fs::write(folder.path().join("Cargo.lock"), text).unwrap();
    fs::create_dir_all(folder.path().join("target/debug")).unwrap();
    let other = Lock::above(&folder.path().join("target/debug")).unwrap().expect("a lock above");
    assert_eq!(other.entry("rand_pcg").as_deref(), Some("version = \"0.10.2\"\nchecksum = \"ab\""));
    assert_eq!(other.entry("rand"), None);
    // A published package is tested without the workspace's lock.
    let Some(lock) = lock else { return };
    for name in COMPUTES {
        assert!(lock.entry(name).is_some_and(|entry| entry.contains("checksum")), "{name}");
    }
    // So that the program and the package of Python go on from each other's files.
    let python = Lock::above(&own().join("../zonal-python")).unwrap().expect("a lock");
    if python.path.parent().is_some_and(|parent| parent.ends_with("zonal-python")) {
        for name in COMPUTES {
            assert_eq!(python.entry(name), lock.entry(name), "{}", python.path.display());
        }
    }
}

#[test]
fn the_version_of_rows_is_that_of_the_package_with_the_identity_behind_it() {
    let version = zonal_lab::sweep::version();
    let (package, identity) = version.split_once('+').expect("an identity");
    assert_eq!(package, env!("CARGO_PKG_VERSION"));
    assert_eq!(identity.len(), 12);
    assert!(identity.bytes().all(|byte| byte.is_ascii_hexdigit()), "{identity}");
}
