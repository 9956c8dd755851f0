//! A trace to a Perfetto trace, or back to a `.zonal` file: `convert IN OUT`.

use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;

use zonal_perfetto::{is_perfetto, read_trace, write_trace};
use zonal_trace::Recording;
use zonal_trace::make::{Target, convert};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("usage: convert IN OUT; OUT ends in .zonal, .txt or .perfetto-trace".into());
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    if is_perfetto(&from) {
        println!("{:?}", read_trace(&from, &to, 1, go_on)?);
    } else if to.extension().is_some_and(|ending| ending == "perfetto-trace") {
        println!("{} events", write_trace(&Recording::open(from)?, File::create(to)?, go_on)?);
    } else {
        let written = convert(&Recording::open(from)?, Target::file(to).level(1), &mut |_| ())?;
        println!("{} events", written.events);
    }
    Ok(())
}
