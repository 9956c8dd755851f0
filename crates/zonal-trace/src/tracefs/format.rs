//! One event's `format` file of tracefs.
//!
//! ```text
//! name: mm_page_free
//! ID: 655
//! format:
//!         field:unsigned short common_type;       offset:0;       size:2; signed:0;
//!         …
//!         field:unsigned long pfn;        offset:8;       size:8; signed:0;
//!
//! print fmt: "page=%p pfn=0x%lx order=%d", …
//! ```

use crate::error::{Fault, bad_field};
use crate::fields::decimal;

/// Largest format file that is read, in bytes; the longest of Linux 6.18 has 12 KiB.
pub(crate) const FORMAT_BYTES_MAX: u64 = 1 << 20;

/// Most fields of an event that are kept.
const FIELDS_MAX: usize = 256;

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldFormat {
    pub(crate) name: String,
    pub(crate) offset: u16,
    pub(crate) size: u16,
}

/// A format file, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventFormat {
    pub(crate) name: String,
    pub(crate) id: u16,
    pub(crate) fields: Vec<FieldFormat>,
    /// What follows `print fmt:`.
    pub(crate) print: String,
}

/// The name of the event of a format file, without reading the rest.
pub(crate) fn name_of(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"name: ")?.split(|&byte| byte == b'\n').next()
}

impl EventFormat {
    /// Reads a format file.
    pub(crate) fn parse(text: &[u8]) -> Result<EventFormat, Fault> {
        let mut format = EventFormat {
            name: name_of(text)
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .ok_or_else(|| bad_field("event format", "`name: EVENT` first", first(text)))?,
            id: 0,
            fields: Vec::new(),
            print: String::new(),
        };
        let mut id = None;
        for line in text.split(|&byte| byte == b'\n') {
            if let Some(number) = line.strip_prefix(b"ID: ") {
                id = decimal(number).and_then(|id| u16::try_from(id).ok());
            } else if let Some(print) = line.strip_prefix(b"print fmt:") {
                format.print = String::from_utf8_lossy(print).into_owned();
            } else if let Some(field) = line.trim_ascii_start().strip_prefix(b"field:") {
                if format.fields.len() == FIELDS_MAX {
                    return Err(bad_field("event format", "at most 256 fields", line));
                }
                format.fields.push(parse_field(field)?);
            }
        }
        format.id = id.ok_or_else(|| {
            bad_field("event format", "`ID: NUMBER` of 16 bits", format.name.as_bytes())
        })?;
        Ok(format)
    }

    /// The field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&FieldFormat> {
        self.fields.iter().find(|field| field.name == name)
    }
}

fn first(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

/// Reads `unsigned long pfn;  offset:8;  size:8;  signed:0;`.
fn parse_field(text: &[u8]) -> Result<FieldFormat, Fault> {
    let bad = || bad_field("field of an event format", "`TYPE NAME; offset:N; size:N;`", text);
    let mut parts = text.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let declaration = parts.next().ok_or_else(bad)?;
    // `char comm[16]`: the name ends where the brackets begin.
    let name = match declaration.ends_with(b"]") {
        true => declaration.rsplitn(2, |&byte| byte == b'[').last().unwrap_or_default(),
        false => declaration,
    };
    let name = name.trim_ascii();
    let name = name.rsplit(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').next();
    let name = name.filter(|name| !name.is_empty()).ok_or_else(bad)?;
    let (mut offset, mut size) = (None, None);
    for part in parts {
        let number = |digits: &[u8]| decimal(digits).and_then(|n| u16::try_from(n).ok());
        if let Some(digits) = part.strip_prefix(b"offset:") {
            offset = number(digits);
        } else if let Some(digits) = part.strip_prefix(b"size:") {
            size = number(digits);
        }
    }
    Ok(FieldFormat {
        name: String::from_utf8_lossy(name).into_owned(),
        offset: offset.ok_or_else(bad)?,
        size: size.ok_or_else(bad)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: e\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\
        size:2;\tsigned:0;\n\n\tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\t\
        signed:0;\n\tfield:char buf[16];\toffset:12;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"%d\", 1\n";

    #[test]
    fn a_format_file_is_read() {
        let format = EventFormat::parse(TEXT.as_bytes()).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("e", 7));
        let names: Vec<&str> = format.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["common_type", "parent_comm", "buf"]);
        let buf = format.field("buf").unwrap();
        assert_eq!((buf.offset, buf.size), (12, 16));
        assert_eq!(format.print, " \"%d\", 1");
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (text, part) in [
            ("", "`name: EVENT` first"),
            ("name: e\n", "`ID: NUMBER`"),
            ("name: e\nID: 65536\n", "`ID: NUMBER`"),
            ("name: e\nID: 1\nfield:int a; size:4;\n", "offset:N"),
            ("name: e\nID: 1\nfield:; offset:1; size:4;\n", "TYPE NAME"),
        ] {
            let message = EventFormat::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
