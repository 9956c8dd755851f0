//! Recordings of runs, read again.

use zonal_trace::{EventKind, Notice, Recording};

use super::*;
use crate::machine::Machine;

fn recipe(policy: &str, workload: &str) -> Recipe {
    let mut recipe = Recipe::new("xeon-2007-8", policy, workload);
    (recipe.warm_us, recipe.run_us) = (200, 400);
    recipe
}

fn presets(name: &str) -> Result<Machine, LabError> {
    Ok(Machine::named(name)?)
}

#[test]
fn a_recording_has_every_call_of_the_run_and_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zonal");
    for (policy, workload) in
        [("linux-6.18", "burst:hold=600"), ("linux-5.4", "handoff"), ("linux-6.6", "churn")]
    {
        let mut recipe = recipe(policy, workload);
        // Nothing before what is measured, so that the figures are of all that is recorded.
        (recipe.warm_us, recipe.run_us) = (0, 300);
        let plain = recipe.plan(&presets).unwrap().run().unwrap();
        let (figures, events) = record(&recipe, &presets, &path, &mut |_, _| {}).unwrap();
        assert_eq!(figures.hash, plain.hash, "{workload}: the tape changes nothing");
        let recording = Recording::open(&path).unwrap();
        let mut held = std::collections::BTreeMap::new();
        let [mut calls, mut refilled, mut drained, mut waits, mut all] = [0_u64; 5];
        let mut wait_ns = 0;
        let mut since = std::collections::BTreeMap::new();
        for event in recording.events() {
            let event = event.unwrap();
            all += 1;
            match event.kind {
                EventKind::Alloc { pfn: Some(pfn), order, .. } => {
                    calls += 1;
                    assert!(held.insert(pfn, order).is_none(), "{workload}: {pfn} has two owners");
                }
                EventKind::Alloc { pfn: None, .. } => calls += 1,
                EventKind::Free { pfn, order } => {
                    calls += 1;
                    assert_eq!(held.remove(&pfn), Some(order), "{workload}: {pfn}");
                }
                EventKind::ZoneLocked { order, percpu_refill: true, .. } => refilled += 1 << order,
                EventKind::PcpuDrain { order, .. } => drained += 1 << order,
                EventKind::Notice(Notice::ContentionBegin { .. }) => {
                    since.insert(event.cpu, event.time_ns);
                }
                EventKind::Notice(Notice::ContentionEnd { .. }) => {
                    waits += 1;
                    wait_ns += event.time_ns - since.remove(&event.cpu).unwrap();
                }
                _ => {}
            }
        }
        assert_eq!(all, events);
        let figure = |name: &str| figures.get(name).unwrap();
        assert_eq!(calls as f64, figure("calls"), "{workload}");
        assert_eq!(refilled as f64, figure("refilled_pages"), "{workload}");
        assert_eq!(drained as f64, figure("drained_pages"), "{workload}");
        assert_eq!(waits as f64, figure("lock_contended"), "{workload}");
        if waits > 0 {
            let cycles = figure("cycles_per_call") * figure("calls");
            let told = figure("lock_wait_percent") / 100.0 * cycles;
            let ghz = Machine::named("xeon-2007-8").unwrap().ghz;
            // Times are whole nanoseconds.
            let off = (wait_ns as f64 * ghz - told).abs();
            assert!(off <= 2.0 * ghz * waits as f64 + 0.01 * told, "{workload}: {off} of {told}");
        }
    }
}

#[test]
fn a_recording_says_which_run_it_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zonal");
    let recipe = recipe("linux-6.18+pcp.scale_max=2", "burst:hold=64");
    let (figures, _) = record(&recipe, &presets, &path, &mut |_, _| {}).unwrap();
    let recording = Recording::open(&path).unwrap();
    let machine = recording.description();
    assert_eq!(machine.kernel_release.as_deref(), Some("6.18.0-lab"));
    assert_eq!((machine.cpus, machine.flags.batch_scale_max), (Some(8), Some(2)));
    assert_eq!(machine.nodes.iter().map(|node| node.cpus.len()).sum::<usize>(), 8);
    assert!(machine.zones.iter().all(|zone| zone.managed > 0 && zone.min < zone.high));
    let files = recording.machine_files().unwrap();
    let meta: serde_json::Value = serde_json::from_slice(files.get("meta.json").unwrap()).unwrap();
    assert_eq!(meta["lab"]["policy"], "linux-6.18+pcp.scale_max=2");
    assert_eq!(meta["lab"]["figures"]["result_hash"], figures.hash);
    assert_eq!(meta["lab"]["command"], recipe.command());
    let toml = meta["lab"]["machine_toml"].as_str().unwrap();
    assert_eq!(Machine::parse(toml).unwrap(), Machine::named("xeon-2007-8").unwrap());
}

#[test]
fn a_recording_says_whether_a_cpus_share_of_cache_is_large() {
    // 4 MiB for two CPUs, and 32 MiB for 72: lists are drained later where it is large.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zonal");
    for (machine, is_large) in [("xeon-2007-8", true), ("altra-2020-72", false)] {
        let mut recipe = recipe("linux-6.12", "churn");
        recipe.machine = machine.to_owned();
        record(&recipe, &presets, &path, &mut |_, _| {}).unwrap();
        let flags = Recording::open(&path).unwrap().description().flags;
        assert_eq!(flags.free_high_batch_expected, Some(is_large), "{machine}");
    }
}

#[test]
fn what_cannot_be_recorded_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zonal");
    let none = &mut |_, _| {};
    let error = record(&recipe("zonal", "churn"), &presets, &path, none).unwrap_err().to_string();
    assert!(error.contains("policy zonal: a recording is of a kernel"), "{error}");
    let nowhere = folder.path().join("nowhere/a.zonal");
    let error = record(&recipe("linux-6.18", "churn"), &presets, &nowhere, none).unwrap_err();
    assert!(error.to_string().contains("a.zonal: cannot be written"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
