//! Predictions and results as text, for people.

use zonal_replay::verify::{Interval, Outcome, Registered};

fn interval(one: &Interval, digits: usize) -> String {
    let Interval { low, mid, high } = one;
    format!("{mid:.digits$} ({low:.digits$} to {high:.digits$})")
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
            "\n  saves {} % of the elapsed time, which is waited for disks",
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
