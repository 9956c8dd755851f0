//! Times as people type them.

use std::time::Duration;

use super::load::LOOK;

/// A time such as 10s, of a millisecond and more.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time = Some(wait_time(text)?).filter(|time| *time >= LOOK / 10);
    time.ok_or_else(|| "expected a time of at least 1ms".to_owned())
}

/// A time such as 10s, 500ms or 5m, zero too.
pub fn wait_time(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let number: f64 = digits.parse().map_err(|_| "expected a time such as 10s or 500ms")?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        _ => return Err("expected a unit of ms, s or m".to_owned()),
    };
    let time = Duration::try_from_secs_f64(seconds);
    time.map_err(|_| "expected a time such as 10s or 500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "-1", "1h", "0", "x", "1e300s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
