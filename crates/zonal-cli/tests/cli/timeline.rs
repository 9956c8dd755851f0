//! `zonal replay --fidelity`: what is told bin by bin adds up to what is told in total.

use crate::program::{json, refusal};

fn sum(side: &serde_json::Value) -> u64 {
    side.as_array().unwrap().iter().map(|bin| bin.as_u64().unwrap()).sum()
}

#[test]
fn bins_add_up_to_the_totals_of_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let path = page.to_str().unwrap();
    let policy =
        ["replay", "--memory", "none", "--policy", "linux-6.18", "--json", "--fidelity", path];
    let report = json(&policy);
    let fidelity = &report["fidelity"];
    let places = fidelity["places"].as_array().unwrap();
    assert!(!places.is_empty());
    let bins = fidelity["bins"].as_u64().unwrap() as usize;
    for key in ["refill_pages", "refill_holds", "drain_pages", "drain_holds"] {
        for side in ["model", "kernel"] {
            let total: u64 = places.iter().map(|place| sum(&place[key][side])).sum();
            assert_eq!(report[side][key].as_u64(), Some(total), "{key} of the {side}");
            assert!(places.iter().all(|place| place[key][side].as_array().unwrap().len() == bins));
        }
    }
    // The bundled recording has no samples of zoneinfo.
    assert_eq!(fidelity["polls"], 0);
    assert!(places[0]["count"]["mean_difference"].is_null());
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<svg").count(), 4 * places.len());
    assert!(!html.contains("http://") || html.contains("http://www.w3.org/2000/svg"));
    assert!(html.contains("what limits it"), "the page says what limits the model");
}

#[test]
fn a_recording_with_samples_is_held_to_them() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces/redis");
    if !std::path::Path::new(root).is_dir() {
        eprintln!("SKIPPED: {root} is not here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let path = page.to_str().unwrap();
    let policy =
        ["replay", "--memory", "none", "--policy", "linux-6.18", "--json", "--fidelity", path];
    let report = json(&[&policy[..], &["--use-recorded", "decay", root]].concat());
    let fidelity = &report["fidelity"];
    assert!(fidelity["polls"].as_u64().unwrap() > 100, "{}", fidelity["polls"]);
    for place in fidelity["places"].as_array().unwrap() {
        let (off, mean) = (&place["high"]["mean_difference"], &place["high"]["kernel_mean"]);
        let (off, mean) = (off.as_f64().unwrap(), mean.as_f64().unwrap());
        // A model that follows the kernel's rule is far nearer than one that does not: twice as
        // far off as the mark is high would be no model at all.
        assert!(off < mean, "{}: {off} of {mean}", place["zone"]);
    }
}

#[test]
fn a_pool_has_no_timeline() {
    let text = refusal(&["replay", "--fidelity", "x.html"]);
    assert!(text.contains("--fidelity needs --memory none"), "{text}");
}
