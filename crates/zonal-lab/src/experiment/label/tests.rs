use super::super::{Cell, EXPERIMENTS, Experiment, FiguresIn, GIVEN, Options, Table};
use super::*;
use crate::provenance::{Origin, Provenance};

/// Every provenance there is, with the name of its figure.
fn all() -> Vec<(String, Provenance)> {
    let machines = Machine::presets().into_iter().flat_map(|machine| machine.sources);
    let given = given()
        .chain(GIVEN.iter().copied().flatten())
        .map(|given| (given.name.to_owned(), given.from.clone()));
    let params = workload::KINDS.iter().flat_map(|kind| {
        kind.params
            .iter()
            .map(move |param| (format!("{}:{}", kind.name, param.name), param.from.clone()))
    });
    machines.chain(given).chain(params).collect()
}

/// The texts of an experiment's published tables.
fn published(experiment: &str) -> &'static [&'static str] {
    match experiment {
        "vmstat-update-cost" => &[include_str!("../../../published/2007-vmstat-update-cost.csv")],
        "numa-stat-threshold" => &[include_str!("../../../published/2017-numa-stat-threshold.csv")],
        "deferred-init" => &[
            include_str!("../../../published/2019-deferred-init-kernbench.csv"),
            include_str!("../../../published/2019-deferred-init-pagesets.csv"),
        ],
        "pcp-kbuild" => &[
            include_str!("../../../published/2023-pcp-autotune-kbuild.csv"),
            include_str!("../../../published/2023-pcp-autotune-kbuild-memory.csv"),
        ],
        "pcp-unix" => &[include_str!("../../../published/2023-pcp-autotune-lmbench-af-unix.csv")],
        "pcp-sctp" => {
            &[include_str!("../../../published/2023-pcp-autotune-netperf-sctp-stream-many.csv")]
        }
        name if name.starts_with("zone-reclaim-") => {
            &[include_str!("../../../published/2011-zone-reclaim.csv")]
        }
        other => panic!("{other}: of which table?"),
    }
}

#[test]
fn cells_that_are_named_are_published() {
    for (figure, from) in all() {
        for name in from.cells() {
            let mut parts = name.split('/');
            let experiment = parts.next().unwrap_or_default();
            assert!(EXPERIMENTS.iter().any(|known| known.name == experiment), "{figure}: {name}");
            for part in parts {
                let fields = published(experiment).iter().flat_map(|text| text.split(['\n', ',']));
                assert!(
                    fields.clone().any(|field| field == part),
                    "{figure}: no {part} for {name}"
                );
            }
        }
    }
}

#[test]
fn every_figure_says_more_than_a_word() {
    for (figure, from) in all() {
        assert!(from.how().len() >= 8, "{figure}: {from}");
        let chosen = [Origin::Fitted, Origin::Seen].contains(&from.origin());
        assert_eq!(chosen, from.cells().count() > 0, "{figure}");
    }
}

#[test]
fn a_cell_is_a_prediction_only_where_nothing_names_it() {
    let machine = Machine::named("icelake-2023-128").unwrap();
    let of = |experiment, row, column| label(&machine, GIVEN, [experiment, row, column]);
    assert_eq!(of("pcp-unix", "base", "lock_contention_percent"), Label::Seen);
    assert_eq!(of("pcp-unix", "patch3", "score"), Label::Seen);
    assert_eq!(of("pcp-unix", "patch9", "score"), Label::Seen, "a figure had the table in view");
    let rome = Machine::named("rome-2019-256").unwrap();
    assert_eq!(label(&rome, GIVEN, ["pcp-sctp", "patch9", "score"]), Label::Prediction);
    // A parameter of a workload, a constant of the model, and a whole table.
    assert_eq!(of("pcp-sctp", "base", "lock_contention_percent"), Label::Fitted);
    assert_eq!(of("deferred-init", "user_amean", "vanilla"), Label::Fitted);
    assert_eq!(of("deferred-init", "user_amean", "resetpcpu"), Label::Seen);
    assert_eq!(of("zone-reclaim-fsmark", "elapsed_s", "zlcfirst"), Label::Seen);
}

#[test]
fn a_cell_that_fitted_costs_make_up_is_no_prediction() {
    let experiment = Experiment::named("vmstat-update-cost").unwrap();
    let table = experiment.run(&Options::seeded(1), &mut |_, _| {}).unwrap();
    let published: Vec<_> = table.cells.iter().filter(|cell| cell.published.is_some()).collect();
    assert_eq!(published.len(), 9);
    for cell in published {
        assert_eq!(cell.label, Some(Label::Fitted), "{} {}", cell.row, cell.column);
        assert!(cell.calibrated);
    }
    let table = (experiment.run)(&Options::seeded(1), &mut |_, _| {}).unwrap();
    let moves: Vec<f64> = table.cells.iter().filter_map(|cell| cell.moves).collect();
    assert_eq!(moves.len(), table.cells.len());
    assert!(moves.iter().any(|moves| *moves > 5.0), "a cmpxchg is a cost that was not fitted");
    // A cell that moves otherwise than all that were fitted stays what it was.
    let machine = Machine::named("xeon-2007-8").unwrap();
    let base = Cell::new("irq-disable (base)", "count_vm_event", Some(6.0), 6.0);
    let other = Cell::new("local_inc", "count_vm_event", Some(6.0), 7.0);
    for (moves, expected) in [(0.4, Label::Fitted), (0.6, Label::Prediction)] {
        let base = Cell { moves: Some(0.0), ..base.clone() };
        let other = Cell { moves: Some(moves), ..other.clone() };
        let mut table = Table { cells: vec![base, other], ..table.clone() };
        table.label(&machine, GIVEN);
        assert_eq!(table.cells[1].label, Some(expected), "{moves}");
    }
}

#[test]
fn a_cell_that_says_another_again_has_its_label() {
    let labels = |figures_in, cells: [(&str, &str, f64); 4]| {
        let cell = |(row, column, simulated)| Cell::new(row, column, Some(1.0), simulated);
        let mut table =
            Table { cells: cells.map(cell).to_vec(), figures_in, ..pcp_sctp_without_cells() };
        table.label(&Machine::named("icelake-2023-128").unwrap(), GIVEN);
        table.cells.iter().filter_map(|cell| cell.label).collect::<Vec<_>>()
    };
    let cells = [
        ("base", "lock_contention_percent", 0.8),
        ("patch1", "lock_contention_percent", 0.8),
        ("patch1", "free_high", 0.8),
        ("patch3", "lock_contention_percent", 0.7),
    ];
    let (fitted, none) = (Label::Fitted, Label::Prediction);
    assert_eq!(labels(FiguresIn::Columns, cells), [fitted, fitted, none, none]);
    assert_eq!(labels(FiguresIn::Rows, cells), [fitted, none, none, none]);
}

/// What a table of that experiment says before its cells are known.
fn pcp_sctp_without_cells() -> Table {
    let experiment = Experiment::named("pcp-sctp").unwrap();
    let ran = ("icelake-2023-128", &Options::seeded(1));
    experiment.table(ran, String::new(), sha2::Sha256::default())
}

#[test]
fn a_file_says_one_origin_and_its_cells() {
    let base = include_str!("../../../machines/icelake-2023-128.toml");
    let from = "ghz = { sourced =";
    assert!(base.contains(from));
    for (to, expected) in [
        ("ghz = { guessed =", "unknown field `guessed`"),
        ("ghz = { measured = \"x\", sourced =", "expected one of measured, sourced"),
        ("ghz = { in_view = [\"pcp-unix\"], sourced =", "in_view names the cells"),
        ("ghz = { fitted_to = [\"pcp-unix\"], sourced =", "fitted_to names the cells"),
        ("ghz = { fitted =", "fitted_to names the cells"),
        ("ghz = { seen =", "in_view names the cells"),
    ] {
        let error = Machine::parse(&base.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("line "), "{to}: {error}");
    }
    for machine in Machine::presets() {
        assert_eq!(Machine::parse(&machine.to_toml()).as_ref(), Ok(&machine));
    }
}
