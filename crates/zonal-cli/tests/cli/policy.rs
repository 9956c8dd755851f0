//! `zonal policy` and `--set`, the real program: what they print and what they refuse.

use serde_json::Value;

use crate::program::{json, refusal, stdout};

fn value<'a>(report: &'a Value, key: &str) -> Option<&'a str> {
    let values = report["values"].as_array().unwrap();
    values.iter().find(|value| value["key"] == key).map(|value| value["value"].as_str().unwrap())
}

#[test]
fn every_preset_is_listed_with_all_its_values() {
    let presets = json(&["policy", "--json"])["presets"].clone();
    for name in presets.as_array().unwrap() {
        let name = name.as_str().unwrap();
        let report = json(&["policy", "--policy", name, "--json"]);
        assert_eq!(report["policy"], name);
        assert!(value(&report, "pcp.scale_max").is_some());
        let same = json(&["policy", "--policy", name, "--against", name, "--json"]);
        assert_eq!(same["values"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn set_changes_what_a_replay_does_and_is_reported() {
    let replay = |set: &[&str]| {
        let mut args = vec!["replay", "--memory", "none", "--policy", "linux-6.18"];
        args.extend(set.iter().flat_map(|set| ["--set", set]));
        args.push("--json");
        json(&args)
    };
    let (own, single) = (replay(&[]), replay(&["pcp.scale_max=0", "numa.stat=off"]));
    assert_eq!(own["policy_set"].get("numa.stat"), None);
    assert_eq!(single["policy_set"]["pcp.scale_max"], "0");
    assert_eq!(single["policy_set"]["numa.stat"], "off");
    let holds = |report: &Value| report["model"]["refill_holds"].as_u64().unwrap();
    assert!(holds(&single) > 2 * holds(&own), "refills no longer double");
}

#[test]
fn what_cannot_be_set_is_refused_with_what_can() {
    let cases = [
        ("pcp.scale_max", "expected KEY=VALUE"),
        ("pcp.scale_max=", "accepted: 0 to 6"),
        ("pcp.scale_max=9", "accepted: 0 to 6"),
        ("pcp.high_fraction=7", "accepted: 0, or 8 and more"),
        ("nonsense=1", "there are pcp.orders"),
        ("pcp.scale_mx=1", "did you mean 'pcp.scale_max'?"),
        ("scale_max=1", "did you mean 'pcp.scale_max'?"),
    ];
    for (set, expected) in cases {
        for command in ["policy", "replay", "zoneinfo"] {
            let message = refusal(&[command, "--set", set]);
            assert!(message.contains(set) && message.contains(expected), "{message}");
        }
    }
}

#[test]
fn policies_that_are_the_same_are_no_empty_table() {
    let said = stdout(&["policy", "--policy", "zonal", "--against", "zonal"]);
    assert_eq!(said, "policy zonal; no value differs from zonal\n");
}
