//! Makes the predictions of `results/predictions` again, as lines of comma-separated values:
//!
//! ```sh
//! cargo run --release -p zonal-lab --example predict -- K1 A2 --seeds 1,2 --commit HEAD
//! ```
//! Without identifiers all of them, without seeds 1 to 5. `cargo xtask predict` writes the files.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use zonal_lab::predict::{Question, Row, questions, text};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(rows) => {
            print!("{rows}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("predict: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<String, Box<dyn Error>> {
    let (mut ids, mut seeds, mut commit) = (Vec::new(), vec![1, 2, 3, 4, 5], String::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: expected a value"));
        match word.as_str() {
            "--seeds" => seeds = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--commit" => commit.clone_from(value()?),
            id => ids.push(id.to_owned()),
        }
    }
    let all = questions();
    if let Some(id) = ids.iter().find(|id| all.iter().all(|known| known.id != *id)) {
        return Err(format!("no prediction is called {id}; expected one as K1 or M2").into());
    }
    let asked: Vec<Question> =
        all.into_iter().filter(|q| ids.is_empty() || ids.iter().any(|id| id == q.id)).collect();
    Ok(text(&answers(&asked, &seeds, &commit)?)?)
}

/// The rows of all questions, in their order, on as many threads as there are CPUs. A thread takes
/// one seed of a question at a time: those of one question mostly share no run.
fn answers(asked: &[Question], seeds: &[u64], commit: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let each = asked.iter().flat_map(|question| seeds.iter().map(move |seed| (question, *seed)));
    let next = Mutex::new(each.enumerate());
    let made = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let take = || next.lock().ok().and_then(|mut left| left.next());
                while let Some((at, (question, seed))) = take() {
                    let rows = question.answer(&[seed], commit);
                    eprintln!("{} {}, seed {seed}", question.id, question.figure);
                    made.lock().expect("no thread panics with it").push((at, rows));
                }
            });
        }
    });
    let mut made = made.into_inner()?;
    made.sort_by_key(|(at, _)| *at);
    let mut rows = Vec::new();
    for (_, answer) in made {
        rows.extend(answer?);
    }
    Ok(rows)
}
