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
    part_of(path, std::process::id())
}

/// The same for an output of another process.
pub fn part_of(path: &Path, process: u32) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    let mut name = name.as_ref();
    let ending = format!(".{process}.part");
    // Of a name that is too long with these, the end: two outputs may differ there alone.
    while 1 + name.len() + ending.len() > NAME_BYTES_MAX {
        let mut letters = name.chars();
        letters.next();
        name = letters.as_str();
    }
    Some(path.with_file_name(format!(".{name}{ending}")))
}

/// Most bytes of a file's name, on nearly all file systems.
const NAME_BYTES_MAX: usize = 255;

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
        let long = folder.path().join("\u{e4}".repeat(120) + "longest.zonal");
        let long_part = part_of(&long, u32::MAX).unwrap();
        fs::write(&long, "").and_then(|()| fs::write(&long_part, "")).unwrap();
        let name = long_part.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with("\u{e4}longest.zonal.4294967295.part"), "{name}");
        assert!(part.file_name().unwrap().to_str().unwrap().starts_with(".b.zonal."));
    }
}
