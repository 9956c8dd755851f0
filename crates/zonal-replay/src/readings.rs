//! The kernel's texts before and after a run, under the names that either form of recording has.

use std::borrow::Cow;

use zonal_trace::MachineFiles;

/// A text such as `vmstat` before a run: `vmstat.pre`, or `before-vmstat.txt` of an ftrace
/// recording.
pub fn before<'f>(files: &'f MachineFiles, name: &str) -> Option<Cow<'f, str>> {
    first(files, [format!("{name}.pre"), format!("before-{name}.txt")])
}

/// The same after it: `vmstat.post`, or `after-vmstat.txt`.
pub fn after<'f>(files: &'f MachineFiles, name: &str) -> Option<Cow<'f, str>> {
    first(files, [format!("{name}.post"), format!("after-{name}.txt")])
}

/// `vmstat` before and after a run; empty where it is not there.
pub fn vmstats(files: &MachineFiles) -> [Cow<'_, str>; 2] {
    [before(files, "vmstat"), after(files, "vmstat")].map(Option::unwrap_or_default)
}

fn first(files: &MachineFiles, names: [String; 2]) -> Option<Cow<'_, str>> {
    names.iter().find_map(|name| files.get(name)).map(String::from_utf8_lossy)
}

/// The sum of some lines `NAME NUMBER` of such a text.
pub fn sum(text: &str, is_one: impl Fn(&str) -> bool) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let own = lines.filter(|(name, _)| is_one(name));
    let numbers = own.filter_map(|(_, value)| value.trim().parse::<u64>().ok());
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use zonal_trace::{Part, Recording};

    use super::*;
    use crate::{Extras, Replay, unwatched};

    #[test]
    fn both_forms_of_a_recording_have_their_texts_found() {
        let mut files = MachineFiles::default();
        files.set("before-vmstat.txt", b"a".to_vec());
        files.set("after-vmstat.txt", b"b".to_vec());
        files.set("reclaimers.pre", b"c".to_vec());
        files.set("reclaimers.post", b"d".to_vec());
        let of = |name| (before(&files, name), after(&files, name));
        assert_eq!(of("vmstat"), (Some("a".into()), Some("b".into())));
        assert_eq!(of("reclaimers"), (Some("c".into()), Some("d".into())));
        assert_eq!(of("pressure-io"), (None, None));
        assert_eq!(after(&files, "stats"), None);
    }

    #[test]
    fn reclaim_in_an_ftrace_recording_is_told_by_its_counters() {
        let marks = "min 1,low 2,high 3,spanned 2048,present 2048,managed 2048";
        let zoneinfo = format!(
            "Node 0, zone   Normal\n  pages free     900\n        {}\n        protection: (0)\n  \
             pagesets\n    cpu: 0\n              count: 0\n              high:  6\n              \
             batch: 1\n  start_pfn:           1048576\n",
            marks.replace(',', "\n        ")
        );
        let line = |at| {
            format!(
                "a-1 [000] d..1 {at}.000000: mm_page_alloc: page=0 pfn=0x{:x} order=0 \
                 migratetype=1 gfp_flags=GFP_KERNEL\n",
                0x10_0000 + at
            )
        };
        let stream = format!("# tracer: nop\n{}{}", line(1), line(2));
        let of = |after: &str| {
            let parts = [
                ("trace.txt", stream.as_str()),
                ("before-zoneinfo.txt", zoneinfo.as_str()),
                ("before-vmstat.txt", "pgsteal_kswapd 5\n"),
                ("after-vmstat.txt", after),
            ];
            let part = |(name, text): (&str, &str)| Part::new(name, text.as_bytes().to_vec());
            let recording = Recording::from_parts("run", parts.map(part).to_vec()).unwrap();
            let extras = Extras { over_time: true, ..Extras::default() };
            Replay::new(&recording).without_memory(&extras, &mut unwatched).unwrap()
        };
        let not_judged = of("pgsteal_kswapd 9\n").not_judged;
        assert!(not_judged[0].reason.starts_with("reclaim: "), "{not_judged:?}");
        assert_eq!(of("pgsteal_kswapd 5\n").not_judged, []);
    }
}
