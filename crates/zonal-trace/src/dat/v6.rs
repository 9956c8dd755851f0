//! Version 6: one part after the other, then options, then where each CPU's pages are.

use super::file::FileReader;
use super::head::{Initial, Place, TraceDat, assemble, clock_of, option_text};
use super::meta::{Meta, PART_BYTES_MAX};
use crate::bytes::{Damage, Endian};
use crate::error::excerpt;
use zonal_text::CPUS_MAX;

const OPTION_DONE: u16 = 0;
const OPTION_BUFFER: u16 = 3;
const OPTION_CLOCK: u16 = 4;
const OPTION_UNAME: u16 = 5;
const OPTION_CPUS: u16 = 8;

/// Most instances; more than a real recording has.
const BUFFERS_MAX: usize = 1024;

pub(super) fn read(reader: &mut FileReader, initial: Initial) -> Result<TraceDat, Damage> {
    let mut meta = Meta::default();
    meta.header_info(reader)?;
    meta.ftrace_formats(reader)?;
    meta.event_formats(reader)?;
    meta.kallsyms(reader)?;
    let bytes = reader.u32("size of printk formats")?;
    reader.skip(u64::from(bytes), "printk formats")?;
    let bytes = reader.u64("size of command lines")?;
    reader.skip(bytes, "command lines")?;
    let cpus = cpu_count(reader)?;
    let mut dat = assemble(initial, meta, false)?;
    dat.cpus = Some(cpus);
    let mut buffers = Vec::new();
    let mut part = part_name(reader)?;
    if part == *b"options  \0" {
        options(reader, &mut dat, &mut buffers)?;
        part = part_name(reader)?;
    }
    places(reader, &part, cpus, &mut dat)?;
    for offset in buffers {
        reader.seek(offset, "offset of an instance's pages")?;
        let part = part_name(reader)?;
        places(reader, &part, dat.cpus.unwrap_or(cpus), &mut dat)?;
    }
    Ok(dat)
}

fn cpu_count(reader: &mut FileReader) -> Result<u32, Damage> {
    let offset = reader.offset();
    let cpus = reader.u32("number of CPUs")?;
    if cpus == 0 || cpus > CPUS_MAX {
        return Err(Damage::bad(offset, "number of CPUs", "1 to 8192", cpus));
    }
    Ok(cpus)
}

fn part_name(reader: &mut FileReader) -> Result<[u8; 10], Damage> {
    let bytes = reader.piece(10, 10, "the kind of trace data")?;
    let mut name = [0; 10];
    name.copy_from_slice(&bytes);
    Ok(name)
}

fn options(
    reader: &mut FileReader,
    dat: &mut TraceDat,
    buffers: &mut Vec<u64>,
) -> Result<(), Damage> {
    loop {
        let id = reader.u16("id of an option")?;
        if id == OPTION_DONE {
            return Ok(());
        }
        let bytes = reader.u32("size of an option")?;
        let offset = reader.offset();
        let data = reader.piece(u64::from(bytes), PART_BYTES_MAX, "an option")?;
        match id {
            OPTION_BUFFER => {
                let start = data.first_chunk::<8>().map(|bytes| reader.endian().u64(*bytes));
                let start = start.ok_or_else(|| Damage::cut_short(offset, "a buffer's offset"))?;
                if buffers.len() == BUFFERS_MAX {
                    return Err(Damage::bad(offset, "instances", "at most 1024", "more"));
                }
                buffers.push(start);
            }
            OPTION_CLOCK => dat.clock = clock_of(&data).or(dat.clock.take()),
            OPTION_UNAME => dat.uname = option_text(&data),
            OPTION_CPUS => dat.cpus = cpus_option(&data, reader.endian(), offset)?.or(dat.cpus),
            _ => {}
        }
    }
}

/// The number of CPUs of an option.
pub(super) fn cpus_option(data: &[u8], endian: Endian, offset: u64) -> Result<Option<u32>, Damage> {
    let Some(bytes) = data.first_chunk::<4>() else { return Ok(None) };
    match endian.u32(*bytes) {
        cpus if (1..=CPUS_MAX).contains(&cpus) => Ok(Some(cpus)),
        cpus => Err(Damage::bad(offset, "number of CPUs", "1 to 8192", cpus)),
    }
}

/// Where the pages of an instance are.
fn places(
    reader: &mut FileReader,
    part: &[u8],
    cpus: u32,
    dat: &mut TraceDat,
) -> Result<(), Damage> {
    let offset = reader.offset() - part.len() as u64;
    match part {
        b"flyrecord\0" => {}
        b"latency  \0" => {
            let expected = "ring pages: write the text out with `trace-cmd report` and read that";
            return Err(Damage::bad(offset, "kind of trace data", expected, "latency text"));
        }
        other => {
            let expected = "`options`, `flyrecord` or `latency`";
            return Err(Damage::bad(offset, "kind of trace data", expected, excerpt(other)));
        }
    }
    for cpu in 0..cpus {
        let offset = reader.u64("offset of a CPU's pages")?;
        let bytes = reader.u64("size of a CPU's pages")?;
        if bytes > 0 {
            dat.places.push(Place { cpu, offset, bytes });
        }
    }
    Ok(())
}
