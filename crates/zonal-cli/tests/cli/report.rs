//! `zonal trace report`, and the page in a browser.

use std::fs;

use crate::lab::shown;
use crate::program::{json, refusal};
use crate::trace::Place;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../zonal-trace/samples/zlib-make-j4");

#[test]
fn a_recording_becomes_one_page_that_a_browser_shows() {
    let place = Place::new();
    let page = place.file("page.html");
    let only = ["--only", "numa_stat", "--json"];
    let said =
        json(&[&["trace", "report", SAMPLE, "-o", page.to_str().unwrap()], &only[..]].concat());
    assert_eq!(
        (&said["verdict"], &said["output"]),
        (&"change nothing".into(), &page.to_str().into())
    );
    assert!(said["reason"].as_str().unwrap().contains("% of a CPU"), "{said}");
    let written = fs::read_to_string(&page).unwrap();
    let dom = shown(&page);
    for text in [Some(written), dom].into_iter().flatten() {
        for says in [
            "<b>change nothing</b>: the allocator's waits and refills cost",
            "Allocated and freed",
            "Refills and drains",
            "Who allocates, by gfp",
            "GFP_",
            "Lifetimes",
            "% of the allocations are single pages",
            "prefers-color-scheme:dark",
        ] {
            assert!(text.contains(says), "{says}");
        }
        let plots = text.matches("<svg").count();
        assert!(plots >= 2 && plots == text.matches("</svg>").count(), "{plots}");
        // What a pointer shows: a column for each bin of each plot.
        assert!(text.matches("class=\"hover\"").count() >= 100 * plots);
        assert!(text.contains(" s: allocated: ") && text.contains(" s: refilled: "));
        for fetch in ["src=", "href=", "url(", "@import", "<script", "<link", "<iframe"] {
            assert!(!text.contains(fetch), "{fetch}");
        }
        for (open, close) in
            [("<figure", "</figure>"), ("<table", "</table>"), ("<rect", "</rect>")]
        {
            // Plotters closes its own rectangles at once.
            let (opened, closed) = (text.matches(open).count(), text.matches(close).count());
            assert!(opened == closed || open == "<rect", "{open}: {opened} {closed}");
        }
    }
    // Only the page is there.
    assert_eq!(fs::read_dir(place.file("")).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_written_is_found_out_first() {
    let message = refusal(&["trace", "report", SAMPLE, "-o", "/nowhere/page.html"]);
    assert!(message.contains("/nowhere/page.html"), "{message}");
    let place = Place::new();
    let page = place.file("page.html");
    let name = page.to_str().unwrap();
    let message = refusal(&["trace", "report", SAMPLE, "-o", name, "--only", "nothing"]);
    assert!(message.contains("nothing"), "{message}");
    assert!(!page.exists());
}
