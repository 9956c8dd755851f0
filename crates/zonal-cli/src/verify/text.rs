//! Predictions and results as text, for people.

use zonal_replay::verify::{Interval, Outcome, Plan, Registered, Run};
use zonal_trace::record::COLD;

use super::args::VerifyArgs;

/// Less processor time of others, by elapsed time, is nobody's.
const WORTH_MINDING: f64 = 0.1;

fn interval(one: &Interval, digits: usize) -> String {
    let Interval { low, mid, high } = one;
    format!("{mid:.digits$} ({low:.digits$} to {high:.digits$})")
}

/// How long the rest takes, by one run of `run_s`.
pub fn takes(args: &VerifyArgs, run_s: Option<f64>) -> String {
    let VerifyArgs { duration, blocks, recordings, no_touch, .. } = args;
    let window_s = duration.map_or(0.0, |time| time.as_secs_f64());
    let run_s = run_s.unwrap_or(window_s);
    let timed = Plan::new(*blocks, 0).runs().count();
    let recorded = 2 * usize::from(*recordings);
    let warm_ups = usize::from(duration.is_none());
    let cold_s = if *no_touch { 0.0 } else { COLD.as_secs_f64() };
    let all_s = (timed + recorded + warm_ups) as f64 * run_s + recorded as f64 * cold_s;
    format!(
        "{timed} runs and {recorded} recordings are to come, at {run_s:.1} s for a run about \
         {all_s:.0} s, and what the recordings take to be read; Ctrl-C ends it at any time"
    )
}

/// What to mind where others took more processor time than the command.
pub fn elsewhere(run: &Run, elsewhere_s: f64) -> Option<String> {
    let (own_s, is_more) = (run.cpu_s, elsewhere_s > run.cpu_s);
    let is_some = elsewhere_s > run.elapsed_s * WORTH_MINDING;
    (is_more && is_some).then(|| {
        format!(
            "the command and its children took {own_s:.2} s of processor time, others \
             {elsewhere_s:.2} s meanwhile: neighbours, or daemons that it starts, which are not \
             counted. Have these run as its children (in the foreground, and waited for), or \
             judge by elapsed time (--by time)"
        )
    })
}

/// The prediction, before anything is tried.
pub fn registered(registered: &Registered) -> String {
    let Registered { setting, now, load, seed, judged_by, predicted, .. } = registered;
    let off = predicted.model_error_percent;
    let off = off.map_or("unknown".to_owned(), |percent| format!("{percent:.1} %"));
    let mut text = format!(
        "predicted for {setting} (now {now}), load `{load}`, order by seed {seed}:\n  \
         saves {} % of a CPU; the model is off by {off} here",
        interval(&predicted.saving_percent_of_cpu, 3)
    );
    if predicted.not_judged_percent > 0.0 {
        let percent = predicted.not_judged_percent;
        text.push_str(&format!("; {percent:.0} % of the time cannot be judged"));
    }
    let of_time = &predicted.saving_percent_of_time;
    if of_time.high > 0.0 {
        text.push_str(&format!(
            "\n  saves {} % of the elapsed time, by less waiting for disks and reading again",
            interval(of_time, 1)
        ));
    }
    text.push_str(&format!("\n  judged by {}", judged_by.name()));
    text
}

/// The verdict, and predicted beside measured.
pub fn outcome(outcome: &Outcome) -> String {
    let Outcome { registered, measured, verdict, reason, interrupted, .. } = outcome;
    let predicted = &registered.predicted;
    let early = interrupted.map_or(String::new(), |early| format!("{early}; by these "));
    let mut text = format!(
        "{early}{}: {}: {reason}\n\n{:<30}{:>29} {:>29}\n",
        verdict.name(),
        registered.setting,
        "",
        "predicted",
        "measured"
    );
    let mut row = |name: &str, predicted: Option<String>, measured: Option<String>| {
        let cell = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let (predicted, measured) = (cell(predicted), cell(measured));
        text.push_str(&format!("{name:<30}{predicted:>29} {measured:>29}\n"));
    };
    let percent = |one: &Interval| Some(interval(one, 2));
    let all = |one: &Option<Interval>| one.as_ref().and_then(percent);
    let saving = &predicted.saving_percent_of_cpu;
    row("saves, % of a CPU", percent(saving), all(&measured.saving_percent_of_cpu));
    row("  runs that are the same", None, all(&measured.same_percent_of_cpu));
    let share = |one: &Option<Interval>| match one.as_ref()? {
        noise if noise.says_nothing() => Some("too noisy to say".to_owned()),
        one => percent(one),
    };
    let of_time = &predicted.saving_percent_of_time;
    let expected = percent(of_time).filter(|_| of_time.high > 0.0);
    row("saves, % of elapsed time", expected, share(&measured.saving_percent_of_time));
    row("  runs that are the same", None, share(&measured.same_percent_of_time));
    if measured.saving_percent_of_metric.is_some() {
        row("saves, % of its own figure", None, share(&measured.saving_percent_of_metric));
        row("  runs that are the same", None, share(&measured.same_percent_of_metric));
    }
    row("read, GiB, as it is", None, all(&measured.read_gib_now));
    let expected = predicted.read_gib.as_ref().and_then(percent);
    row("  with the setting", expected, all(&measured.read_gib));
    let count = |one: &Interval| interval(one, 0);
    let (was, then) = (&predicted.recorded, &predicted.counts);
    let found = measured.counts.as_ref();
    row("refilled pages, as it is", None, Some(count(&was.refill_pages)));
    let own = found.map(|found| count(&found.refill_pages));
    row("  with the setting", Some(count(&then.refill_pages)), own);
    row("drained pages, as it is", None, Some(count(&was.drain_pages)));
    let own = found.map(|found| count(&found.drain_pages));
    row("  with the setting", Some(count(&then.drain_pages)), own);
    row("holds of zone locks, as it is", None, Some(count(&was.lock_holds)));
    let own = found.map(|found| count(&found.lock_holds));
    row("  with the setting", Some(count(&then.lock_holds)), own);
    let (now, tried) = measured.runs;
    text.push_str(&format!(
        "\n{now} runs as it is and {tried} with the setting, in random order by seed {}; counts \
         are of the\nwhole host during a run, whatever else it does, from recordings. {} is {} \
         again.\n",
        registered.seed,
        registered.setting.split('=').next().unwrap_or_default(),
        registered.now
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_daemons_is_missed() {
        let run = Run { cpu_s: 0.04, elapsed_s: 5.0, ..Run::default() };
        let told = elsewhere(&run, 9.0).unwrap();
        assert!(told.contains("0.04 s") && told.contains("9.00 s meanwhile"), "{told}");
        assert_eq!(elsewhere(&run, 0.4), None, "hardly anything");
        assert_eq!(elsewhere(&Run { cpu_s: 9.0, ..run }, 8.0), None);
    }

    #[test]
    fn how_long_it_takes_is_told_by_one_run() {
        let words = VerifyArgs::of_words;
        // 15 runs, a warm-up and four recordings of 13 s, two seconds before each of these.
        let text = takes(&words(&["--", "true"]), Some(13.0));
        assert!(text.contains("15 runs and 4 recordings"), "{text}");
        assert!(text.contains("13.0 s for a run about 268 s"), "{text}");
        let text = takes(&words(&["--duration", "10s", "--no-touch", "--recordings", "1"]), None);
        assert!(text.contains("15 runs and 2 recordings"), "{text}");
        assert!(text.contains("about 170 s"), "{text}");
    }
}
