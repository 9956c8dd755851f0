//! Where an output goes, and where it is until it is whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The plain file that an output at `path` becomes: the one behind its links, if there is one. Who
/// writes beside it and renames then replaces neither a link nor anything else.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] where there is something that is neither a plain file nor a
/// folder, such as a pipe or a device: a rename would replace it.
pub fn plain(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() => path.canonicalize(),
        Ok(there) if !there.is_dir() => {
            Err(refused("no plain file, which an output could replace; expected another name"))
        }
        // A link to what is not there yet: it is made where the link leads.
        Err(_) if path.is_symlink() => {
            let to = fs::read_link(path)?;
            let to = path.parent().unwrap_or(Path::new("")).join(to);
            match to.is_symlink() {
                true => Err(refused("a link to a link that leads nowhere; expected another name")),
                false => Ok(to),
            }
        }
        _ => Ok(path.to_owned()),
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Where an output is until it is whole: beside its place, under a name of this process.
pub fn part(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    Some(path.with_file_name(format!(".{name}.{}.part", std::process::id())))
}

/// Writes a file, beside its place and then moved there, so that what was there stays where that
/// fails. What is no plain file, such as a device, is written to.
///
/// # Errors
/// Those of the system.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, content);
    }
    let place = plain(path)?;
    let part = part(&place).ok_or_else(|| refused("no name of a file"))?;
    let moved = fs::write(&part, content).and_then(|()| fs::rename(&part, &place));
    if moved.is_err() {
        // It cannot have been moved.
        let _ = fs::remove_file(&part);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_link_leads_to_its_file_and_a_device_is_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.zonal"), folder.path().join("b.zonal"));
        assert_eq!(plain(&file).unwrap(), file, "not there yet");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(plain(&link).unwrap(), file.canonicalize().unwrap());
        let (later, first) = (folder.path().join("later.zonal"), folder.path().join("c.zonal"));
        std::os::unix::fs::symlink("later.zonal", &first).unwrap();
        assert_eq!(plain(&first).unwrap(), later, "where the link leads");
        let error = plain(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("no plain file"), "{error}");
        let part = part(&link).unwrap();
        assert_eq!(part.parent(), link.parent());
        assert!(part.file_name().unwrap().to_str().unwrap().starts_with(".b.zonal."));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_is_replaced_whole_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        write(&file, b"one").unwrap();
        write(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        // What is beside its place is full.
        std::os::unix::fs::symlink("/dev/full", part(&file).unwrap()).unwrap();
        assert!(write(&file, b"three").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        write(Path::new("/dev/null"), b"four").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write(&folder.path().join("no/a.json"), b"").is_err());
    }
}
