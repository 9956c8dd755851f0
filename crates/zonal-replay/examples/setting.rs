//! What a setting is predicted to do to the counts of recordings:
//! `setting vm.NAME=VALUE RECORDING…`.

use zonal_replay::verify::{Tried, predict};
use zonal_trace::Recording;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let tried = Tried::parse(&args.next().ok_or("expected vm.NAME=VALUE RECORDING…")?)?;
    for path in args {
        let recording = [Recording::open(std::path::Path::new(&path))?];
        let predicted = predict(&recording, &tried, None, &mut zonal_replay::unwatched)?;
        println!("{path}\n{}", serde_json::to_string_pretty(&predicted)?);
    }
    Ok(())
}
