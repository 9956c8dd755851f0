//! Costs of the lab belong to machines and to the cost model. An experiment or a workload with a
//! cost of its own could be fitted to any table.

use super::finding::Finding;
use super::tree::Tree;

/// Where no cost may stand.
const PLACES: [&str; 2] = ["crates/zonal-lab/src/experiment/", "crates/zonal-lab/src/workload/"];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|f| PLACES.iter().any(|p| f.path.starts_with(p))) {
        let Some(rust) = &file.rust else { continue };
        for (index, line) in rust.code.lines().enumerate() {
            if let Some(what) = cost(line) {
                let message = format!("{what}; costs belong to `machines/` and `cost/`");
                findings.push(Finding::new(&file.path, index + 1, "lab-cost", message));
            }
        }
    }
}

/// What in a line of code sets a cost.
fn cost(line: &str) -> Option<&'static str> {
    if line.contains("WorkCosts") || line.contains("LineCosts") {
        return Some("a table of costs");
    }
    let after = |name: &str| line.split_once(name).map(|(_, rest)| rest.trim_start());
    if after(".work(").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Some("work of a fixed number of cycles");
    }
    let figure = [".work.", ".line."].iter().find_map(|table| after(table));
    let assigned = |rest: &str| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let rest = rest.trim_start();
        let by = rest.starts_with(['+', '-', '*', '/']) && rest[1..].starts_with('=');
        by || (rest.starts_with('=') && !rest.starts_with("=="))
    };
    figure.is_some_and(assigned).then_some("a figure of a machine is changed")
}

#[cfg(test)]
mod tests {
    use super::cost;

    #[test]
    fn reading_a_figure_is_fine_and_setting_one_is_not() {
        assert_eq!(cost("home.work(work.alloc);"), None);
        assert_eq!(cost("let pair = machine.work.alloc + machine.work.free;"), None);
        assert_eq!(cost("if machine.line.llc == other {"), None);
        for line in
            ["home.work(300);", "machine.work.alloc = 3;", "m.line.serve += 1;", "WorkCosts {"]
        {
            assert!(cost(line).is_some(), "{line}");
        }
    }
}
