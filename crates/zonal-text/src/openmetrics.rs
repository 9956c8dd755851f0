//! The OpenMetrics text format, as monitoring systems scrape it.
//!
//! ```text
//! # TYPE zonal_zone_nr_free_pages gauge
//! # HELP zonal_zone_nr_free_pages pages free in the buddy
//! zonal_zone_nr_free_pages{node="0",zone="Normal"} 491916
//! # EOF
//! ```
//!
//! Crates that write this format (`prometheus-client`, `metrics`, `opentelemetry`) hold the values
//! themselves, in objects that the program registers and updates. Here the values are a reading
//! taken elsewhere and the names a table, and turning one into the other takes more than printing
//! the few kinds of lines that whole numbers need.

use std::fmt::Write as _;

use crate::counters::{Counter, Kind};

/// A text that grows family by family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    text: String,
}

/// The samples of one family are added to this.
#[derive(Debug)]
pub struct Family<'m> {
    text: &'m mut String,
    name: String,
}

impl Metrics {
    /// No metrics yet.
    pub fn new() -> Self {
        Metrics::default()
    }

    /// The family of a counter, named `prefix` and the counter's name. A name must not come twice.
    pub fn family(&mut self, prefix: &str, counter: &Counter) -> Family<'_> {
        let (name, kind) = (counter.name, counter.kind);
        let (kind, suffix) = match kind {
            Kind::Level => ("gauge", ""),
            Kind::Total => ("counter", "_total"),
        };
        self.line(format_args!("# TYPE {prefix}{name} {kind}"));
        self.line(format_args!("# HELP {prefix}{name} {}", escaped(counter.help)));
        Family { text: &mut self.text, name: format!("{prefix}{name}{suffix}") }
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        self.line(format_args!("# EOF"));
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A text of OpenMetrics in the older text format of Prometheus, as node_exporter's textfile
/// collector reads it: there a counter's type and help stand under its name with `_total`.
pub fn prometheus(openmetrics: &str) -> String {
    let mut counter = "";
    let mut plain = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        let words = [words.next(), words.next(), words.next(), words.next()];
        // Writing to a String cannot fail.
        let _ = match words {
            [Some("#"), Some("TYPE"), Some(name), Some("counter")] => {
                counter = name;
                writeln!(plain, "# TYPE {name}_total counter")
            }
            [Some("#"), Some("HELP"), Some(name), Some(help)] if name == counter => {
                writeln!(plain, "# HELP {name}_total {help}")
            }
            _ => writeln!(plain, "{line}"),
        };
    }
    plain
}

impl Family<'_> {
    /// One value, with its labels.
    pub fn sample(&mut self, labels: &[(&str, &dyn std::fmt::Display)], value: u64) {
        let mut line = self.name.clone();
        for (index, (name, label)) in labels.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            let _ = write!(line, "{separator}{name}=\"{}\"", escaped(&label.to_string()));
        }
        line.push_str(if labels.is_empty() { "" } else { "}" });
        let _ = writeln!(self.text, "{line} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Group;

    #[test]
    fn the_older_format_names_counters_with_their_ending() {
        let text = "# TYPE a gauge\n# HELP a the a\na 1\n# TYPE b counter\n# HELP b the b\n\
            b_total 2\n# EOF\n";
        assert_eq!(
            prometheus(text),
            "# TYPE a gauge\n# HELP a the a\na 1\n# TYPE b_total counter\n\
             # HELP b_total the b\nb_total 2\n"
        );
    }

    #[test]
    fn families_and_samples_are_printed() {
        let mut metrics = Metrics::new();
        let free = Group::Zone.counters()[0];
        let mut family = metrics.family("a_", &free);
        family.sample(&[("node", &0), ("zone", &"a\"b\\c\nd")], 7);
        let freed = Group::Event.meaningful().find(|counter| counter.name == "pgfree").unwrap();
        metrics.family("a_", freed).sample(&[], u64::MAX);
        assert_eq!(
            metrics.finish(),
            "# TYPE a_nr_free_pages gauge
# HELP a_nr_free_pages pages free in the buddy
a_nr_free_pages{node=\"0\",zone=\"a\\\"b\\\\c\\nd\"} 7
# TYPE a_pgfree counter
# HELP a_pgfree pages freed
a_pgfree_total 18446744073709551615
# EOF
"
        );
    }
}
