//! Files of sweeps that are Parquet, while several processes want them.

use std::fs;

use zonal_lab::machine::Machine;
use zonal_lab::recipe::Recipe;
use zonal_lab::sweep::{Open, Sweep, axes, write};
use zonal_parquet::{DataSet, join};

fn sweep(over: &str) -> Sweep {
    let mut base = Recipe::new("xeon-2007-8", "zonal", "burst:hold=16");
    (base.warm_us, base.run_us) = (5, 20);
    Sweep::new(&base, axes(&[over.to_owned()]).unwrap(), &|name| Ok(Machine::named(name)?)).unwrap()
}

#[test]
fn a_file_is_not_taken_away_under_a_sweep_and_no_finished_row_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let set = DataSet::of(&folder.path().join("a.parquet"));
    let parquet = folder.path().join("a.parquet");
    set.resume().unwrap();
    sweep("seed=1,2").run(&set.rows, 1, &|_| ()).unwrap();

    // Another sweep began with the rows before this one made them a Parquet file.
    let other = sweep("seed=2,3");
    let mut open = Open::new(&other, &set.rows).unwrap();
    let error = set.finish().unwrap_err().to_string();
    assert!(error.contains("another sweep is writing it"), "{error}");
    assert!(set.rows.exists() && !parquet.exists());
    let missing: Vec<usize> = open.missing().collect();
    assert_eq!(missing, [1], "it goes on from the rows that there were");
    open.add(1, other.text(1).run().unwrap()).unwrap();
    open.finish().unwrap();
    set.finish().unwrap();
    assert!(!set.rows.exists());
    let rows = |files: &[_]| join(files, None).unwrap().rows;
    assert_eq!(rows(std::slice::from_ref(&parquet)).len(), 3);

    // A third one looked for rows before the Parquet file was there.
    sweep("seed=4").run(&set.rows, 1, &|_| ()).unwrap();
    set.finish().unwrap();
    assert_eq!(rows(std::slice::from_ref(&parquet)).len(), 4);

    // Rows that come between a look and a write are not overwritten by the look.
    sweep("seed=5").run(&set.rows, 1, &|_| ()).unwrap();
    let text = fs::read_to_string(&set.rows).unwrap();
    let error = write(&set.rows, &rows(std::slice::from_ref(&parquet))).unwrap_err().to_string();
    assert!(error.contains("--seed 5") && error.contains("would be lost"), "{error}");
    assert_eq!(fs::read_to_string(&set.rows).unwrap(), text);
    set.resume().unwrap();
    assert_eq!(rows(std::slice::from_ref(&set.rows)).len(), 5);
}
