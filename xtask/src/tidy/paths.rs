//! No file says where it was written: no paths of one machine, no addresses of registries.

use super::finding::Finding;
use super::tree::{File, Tree};

/// Starts of absolute paths that exist on one machine only. Put together here, so that this file
/// passes its own check.
const MACHINE_PATHS: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
    concat!("/", "Users/"),
    concat!("/", "tmp/t-"),
];

/// Package clients know their registries.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("deb.debian", ".org"),
];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            machine_path(file, index + 1, line, findings);
            registry_host(file, index + 1, line, findings);
        }
    }
}

fn machine_path(file: &File, number: usize, line: &str, findings: &mut Vec<Finding>) {
    for path in MACHINE_PATHS {
        if line.match_indices(path).any(|(at, _)| starts_a_path(&line[..at])) {
            let message = format!("a path of one machine: {path}");
            findings.push(Finding::new(&file.path, number, "machine-path", message));
        }
    }
}

/// In `docs/work/`, `../work/`, `${top}/work/` the path goes on from something else.
fn starts_a_path(before: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-~})>*".contains(c);
    !before.ends_with(inside)
}

fn registry_host(file: &File, number: usize, line: &str, findings: &mut Vec<Finding>) {
    let written_by_cargo = file.path.ends_with("Cargo.lock") && line.starts_with("source = ");
    if written_by_cargo {
        return;
    }
    let lower = line.to_lowercase();
    for host in REGISTRY_HOSTS.iter().filter(|host| lower.contains(**host)) {
        let message = format!("the address of a registry: {host}");
        findings.push(Finding::new(&file.path, number, "registry-host", message));
    }
}

/// Text with one of each, for tests of all checks together.
#[cfg(test)]
pub fn samples() -> String {
    format!("{}x {}", MACHINE_PATHS[0], REGISTRY_HOSTS[0])
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::{MACHINE_PATHS, REGISTRY_HOSTS, check};

    #[test]
    fn machine_paths_are_found_in_any_text_file() {
        for path in MACHINE_PATHS {
            for before in ["", "cd ", "\"", "(", "=", "file://"] {
                let text = format!("fine\n{before}{path}x\n");
                let found = findings(check, &[("docs/a.md", &text)]);
                assert_eq!(found, ["docs/a.md:2 machine-path"], "{text}");
            }
        }
    }

    #[test]
    fn parts_of_other_paths_are_fine() {
        for before in ["docs", "..", "${top}", "{dir}", "https://example.com", "$TOP"] {
            let text = format!("{before}{}x /tmp/x /proc /sys/devices\n", MACHINE_PATHS[0]);
            assert_eq!(findings(check, &[("a.rs", &text)]), [""; 0], "{text}");
        }
    }

    #[test]
    fn registry_hosts_are_found_except_in_the_lock_file() {
        for host in REGISTRY_HOSTS {
            let text = format!("source = \"registry+https://x/{host}-index\"\n");
            assert_eq!(findings(check, &[("Cargo.lock", &text)]), [""; 0], "{host}");
            assert_eq!(findings(check, &[("a.toml", &text)]), ["a.toml:1 registry-host"]);
            let other = format!("# {}\n", host.to_uppercase());
            assert_eq!(findings(check, &[("Cargo.lock", &other)]), ["Cargo.lock:1 registry-host"]);
        }
    }
}
