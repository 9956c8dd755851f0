//! `zonal bench`, as a program: what it refuses before it measures.

use crate::program::refusal;

#[test]
fn a_file_that_is_no_earlier_run_is_refused_by_name_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (missing, other) = (path("missing.csv"), path("other.json"));
    std::fs::write(&other, r#"{"schema_version": 1, "events": 7}"#).unwrap();
    for (file, what) in [(&missing, "cannot be read"), (&other, "is no report of the bench")] {
        let message = refusal(&["bench", "--quick", "--compare", file]);
        assert!(message.contains(file) && message.contains(what), "{message}");
        assert!(message.contains("expected what `zonal bench --csv FILE`"), "{message}");
    }
    for both in [&["--compare", &other, "--markdown"][..], &["--quick", "--minutes", "5"]] {
        let message = refusal(&[&["bench"], both].concat());
        assert!(message.contains("cannot be used with"), "{message}");
    }
}
