//! Figures and names as text, and as text of a page.

/// A figure as people write it: whole from 1000 on.
pub fn figure(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Text that stands in a page, or in quotes within a tag, as it is.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A figure as a page shows it: whole from 1000 on, in groups of three digits.
pub(crate) fn grouped(value: f64) -> String {
    let text = figure(value);
    let text =
        text.strip_suffix(".00").filter(|_| value.fract() == 0.0).unwrap_or(&text).to_owned();
    let (sign, digits) = text.strip_prefix('-').map_or(("", &*text), |digits| ("-", digits));
    if digits.len() < 5 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return text;
    }
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    format!("{sign}{}", groups.join(","))
}
