//! How much memory the control groups of this process allow, of either version.
//!
//! ```text
//!   /proc/self/cgroup     0::/a/b  or  4:memory:/a/b      which group
//!   /proc/self/mountinfo  fields 4 and 5: what of the tree is mounted, and where
//!        |
//!        v   from the group up to what is mounted, the smallest
//!   memory.max, memory.swap.max   or   memory.limit_in_bytes, memory.memsw.limit_in_bytes
//! ```
//!
//! A container sees its own group, or what is mounted for it; limits above that are not seen.

use std::path::{Path, PathBuf};

/// The files a limit is found by. Tests point them at forged ones.
#[derive(Clone, Debug)]
pub(crate) struct CgroupFiles {
    pub(crate) membership: PathBuf,
    pub(crate) mounts: PathBuf,
}

impl Default for CgroupFiles {
    fn default() -> CgroupFiles {
        CgroupFiles {
            membership: "/proc/self/cgroup".into(),
            mounts: "/proc/self/mountinfo".into(),
        }
    }
}

/// What the groups allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    /// Bytes of memory; no more than this are ever in it.
    pub(crate) memory: u64,
    /// Bytes of swap on top of that; `u64::MAX` for no limit.
    pub(crate) swap: u64,
    /// The file that says how much memory.
    pub(crate) file: PathBuf,
}

/// A version's names.
struct Version {
    memory: &'static str,
    swap: &'static str,
    /// Whether the file of swap counts memory too.
    is_both: bool,
}

const V1: Version =
    Version { memory: "memory.limit_in_bytes", swap: "memory.memsw.limit_in_bytes", is_both: true };
const V2: Version = Version { memory: "memory.max", swap: "memory.swap.max", is_both: false };
/// Above this the first version means no limit.
const NO_LIMIT: u64 = 1 << 60;

/// The smallest limit of this process; `None` without one, or where that is not told.
pub(crate) fn memory_limit(files: &CgroupFiles) -> Option<MemoryLimit> {
    let membership = std::fs::read_to_string(&files.membership).ok()?;
    let mounts = std::fs::read_to_string(&files.mounts).ok()?;
    let groups = membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let limits = groups.filter_map(|(controllers, group)| {
        let version = match controllers {
            "" => &V2,
            _ if controllers.split(',').any(|name| name == "memory") => &V1,
            _ => return None,
        };
        let is_v1 = version.is_both;
        let (root, point) = mounts.lines().find_map(|line| mount(line, is_v1))?;
        smallest(version, &point, below(group, &root))
    });
    limits.min_by_key(|limit| limit.memory)
}

/// What of its tree a line mounts, and where, if it is of groups that limit memory.
fn mount(line: &str, is_v1: bool) -> Option<(String, PathBuf)> {
    let (mounted, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
    let is_it = match is_v1 {
        true => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
        false => kind == "cgroup2",
    };
    let mut fields = mounted.split(' ').skip(3).map(|field| field.replace("\\040", " "));
    let (root, point) = (fields.next()?, fields.next()?);
    is_it.then(|| (root, point.into()))
}

/// Where a group is below what is mounted: the mount itself, if it is not there at all.
fn below<'a>(group: &'a str, root: &str) -> &'a Path {
    let rest = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    match rest.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        true => rest,
        false => Path::new(""),
    }
}

fn smallest(version: &Version, point: &Path, group: &Path) -> Option<MemoryLimit> {
    let number = |path: &Path| {
        let number = std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()?;
        (number < NO_LIMIT).then_some(number)
    };
    let folders = || group.ancestors().map(|group| point.join(group));
    let (memory, file) = folders()
        .filter_map(|folder| {
            let file = folder.join(version.memory);
            Some((number(&file)?, file))
        })
        .min()?;
    let swap = folders().filter_map(|folder| number(&folder.join(version.swap))).min();
    let swap = match version.is_both {
        true => swap.map(|both| both.saturating_sub(memory)),
        false => swap,
    };
    Some(MemoryLimit { memory, swap: swap.unwrap_or(u64::MAX), file })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of these files, with what the process is in and what is mounted; `@` is the tree.
    fn limit(files: &[(&str, &str)], membership: &str, mounts: &str) -> Option<(u64, u64, String)> {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        for (name, text) in files {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), format!("{text}\n")).unwrap();
        }
        let root = tree.path().to_str().unwrap();
        std::fs::write(at("membership"), membership).unwrap();
        std::fs::write(at("mounts"), mounts.replace('@', root)).unwrap();
        let files = CgroupFiles { membership: at("membership"), mounts: at("mounts") };
        let found = memory_limit(&files)?;
        let file = found.file.strip_prefix(tree.path()).unwrap().to_str().unwrap().to_owned();
        Some((found.memory, found.swap, file))
    }

    const UNIFIED: &str = "23 1 0:5 / /proc rw - proc proc rw\n\
                           29 23 0:26 / @/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const FIRST: &str = "31 23 0:28 / @ rw - tmpfs tmpfs rw,mode=755\n\
                         32 31 0:29 / @/cpu rw - cgroup cgroup rw,cpu\n\
                         35 31 0:32 /docker/ab @/memory rw - cgroup cgroup rw,memory\n\
                         41 31 0:38 / @/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let files = [
            ("cg/a/memory.max", "4096000"),
            ("cg/a/memory.swap.max", "0"),
            ("cg/a/b/memory.max", "max"),
            ("cg/a/b/memory.swap.max", "max"),
            ("cg/c/memory.max", "1"),
        ];
        let inside = |group: &str| limit(&files, &format!("0::{group}\n"), UNIFIED);
        assert_eq!(inside("/a/b"), Some((4_096_000, 0, "cg/a/memory.max".into())));
        assert_eq!(inside("/c"), Some((1, u64::MAX, "cg/c/memory.max".into())));
        assert_eq!(inside("/"), None);
        assert_eq!(inside("/../elsewhere"), None);
        assert_eq!(inside("/not/there"), None);
    }

    #[test]
    fn the_first_version_counts_memory_and_swap_together() {
        let files = [
            ("memory/memory.limit_in_bytes", "8192"),
            ("memory/memory.memsw.limit_in_bytes", "12288"),
            ("memory/inner/memory.limit_in_bytes", "9223372036854771712"),
        ];
        let membership = |group: &str| format!("4:cpu,memory:{group}\n1:cpu:/x\n0::/\n");
        let file = || "memory/memory.limit_in_bytes".to_owned();
        for group in ["/docker/ab/inner", "/docker/ab", "/"] {
            let found = limit(&files, &membership(group), FIRST);
            assert_eq!(found, Some((8192, 4096, file())), "{group}");
        }
        assert_eq!(limit(&files, "1:cpu:/x\n", FIRST), None);
        assert_eq!(limit(&files, "nothing\n\n4:memory\n", FIRST), None);
        assert_eq!(limit(&[], &membership("/"), "4 3 - cgroup\n - cgroup2 x\n"), None);
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        let nowhere = CgroupFiles { membership: "/no/file".into(), mounts: "/dev/null".into() };
        assert_eq!(memory_limit(&nowhere), None);
    }
}
