//! Numbers in bytes: what both line parsers share.
//!
//! Everything here works on slices of the line and allocates only for an error. A function that
//! reads a field says in its error what the field should have been.

use crate::error::{Fault, TraceErrorKind, bad_field, excerpt};
use crate::limits::{MIGRATETYPE_MAX, ORDER_MAX, PFN_LIMIT};

/// An unsigned decimal number: digits only, no sign, no overflow.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 {
        return None;
    }
    let mut value = 0_u64;
    for &byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// An unsigned hexadecimal number without a prefix.
pub(crate) fn hexadecimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    let mut value = 0_u64;
    for &byte in bytes {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

/// A thread id.
pub(crate) fn pid(bytes: &[u8]) -> Result<i32, Fault> {
    let (digits, negative) = match bytes.split_first() {
        Some((b'-', digits)) => (digits, true),
        _ => (bytes, false),
    };
    decimal(digits)
        .and_then(|value| i32::try_from(value).ok())
        .map(|value| if negative { -value } else { value })
        .ok_or_else(|| bad_field("thread id", "a decimal number of 32 bits", bytes))
}

/// A CPU of a machine that has `cpus` of them.
pub(crate) fn cpu(bytes: &[u8], cpus: u32) -> Result<u32, Fault> {
    let value = decimal(bytes).ok_or_else(|| bad_field("cpu", "a decimal number", bytes))?;
    match u32::try_from(value) {
        Ok(cpu) if cpu < cpus => Ok(cpu),
        _ => Err(Box::new(TraceErrorKind::CpuOutOfRange { cpu: value, cpus })),
    }
}

/// An order, in decimal.
pub(crate) fn order(bytes: &[u8]) -> Result<u8, Fault> {
    let value = decimal(bytes).ok_or_else(|| bad_field("order", "a decimal number", bytes))?;
    check_order(value)
}

/// An order that is already a number.
pub(crate) fn check_order(value: u64) -> Result<u8, Fault> {
    match u8::try_from(value) {
        Ok(order) if order <= ORDER_MAX => Ok(order),
        _ => Err(Box::new(TraceErrorKind::OrderOutOfRange { most: ORDER_MAX, found: value })),
    }
}

/// A migratetype, in decimal.
pub(crate) fn migratetype(bytes: &[u8]) -> Result<u8, Fault> {
    decimal(bytes)
        .and_then(check_migratetype)
        .ok_or_else(|| bad_field("migratetype", "a number from 0 to 7", bytes))
}

/// A migratetype that is already a number.
pub(crate) fn check_migratetype(value: u64) -> Option<u8> {
    u8::try_from(value).ok().filter(|&value| value <= MIGRATETYPE_MAX)
}

/// A truth value printed as 0 or 1.
pub(crate) fn flag(field: &'static str, bytes: &[u8]) -> Result<bool, Fault> {
    match bytes {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(bad_field(field, "0 or 1", bytes)),
    }
}

/// A page frame number that may be none: 0 and -1 say that an allocation failed (LB-I.6).
pub(crate) fn pfn_or_none(bytes: &[u8]) -> Result<Option<u64>, Fault> {
    if matches!(bytes, b"-1" | b"ffffffffffffffff") {
        return Ok(None);
    }
    Ok(Some(pfn(bytes)?).filter(|&pfn| pfn != 0))
}

/// A page frame number, hexadecimal, without a prefix.
pub(crate) fn pfn(bytes: &[u8]) -> Result<u64, Fault> {
    let value = hexadecimal(bytes)
        .ok_or_else(|| Box::new(TraceErrorKind::PfnNotHex { found: excerpt(bytes) }))?;
    check_pfn(value, bytes)
}

/// A page frame number that is already a number, printed as `bytes`.
pub(crate) fn check_pfn(value: u64, bytes: &[u8]) -> Result<u64, Fault> {
    if value >= PFN_LIMIT {
        return Err(bad_field("page frame number", "a number below 2^52", bytes));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_takes_digits_and_refuses_overflow() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"+1", b"-1", b"1 ", b"0x1", b"1:"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn hexadecimal_takes_both_cases() {
        assert_eq!(hexadecimal(b"ffFF"), Some(0xffff));
        assert_eq!(hexadecimal(b"ffffffffffffffff"), Some(u64::MAX));
        for bad in [&b""[..], b"10000000000000000", b"0x1", b"g", b"-1"] {
            assert_eq!(hexadecimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn pfn_zero_and_minus_one_are_failed_allocations() {
        assert_eq!(pfn_or_none(b"0").unwrap(), None);
        assert_eq!(pfn_or_none(b"-1").unwrap(), None);
        assert_eq!(pfn_or_none(b"ffffffffffffffff").unwrap(), None);
        assert_eq!(pfn_or_none(b"a").unwrap(), Some(10));
        assert!(pfn_or_none(b"10000000000000").is_err());
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(order(b"13").unwrap(), 13);
        assert!(matches!(
            *order(b"14").unwrap_err(),
            TraceErrorKind::OrderOutOfRange { most: 13, found: 14 }
        ));
        assert!(migratetype(b"8").is_err());
        assert_eq!(cpu(b"1", 2).unwrap(), 1);
        assert!(matches!(
            *cpu(b"2", 2).unwrap_err(),
            TraceErrorKind::CpuOutOfRange { cpu: 2, cpus: 2 }
        ));
        assert_eq!(pid(b"-1").unwrap(), -1);
        assert!(pid(b"2147483648").is_err());
        assert!(flag("percpu_refill", b"2").is_err());
    }
}
