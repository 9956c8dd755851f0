//! The text of a row: one line of JSON that says everything its run depends on, so that any
//! process that has the same program makes the same row of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::row::{KEY_COLUMNS, Row};
use super::version::{check_version, version};
use crate::LabError;
use crate::machine::Machine;
use crate::recipe::Recipe;
use crate::units::hex;
use crate::workload::Workload;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowText {
    /// The program's version, as [`version`](super::version()) says it.
    pub version: String,
    /// The machine's name.
    pub machine: String,
    /// Beginning of the hash of its figures.
    pub machine_id: String,
    /// Its file, where it is no preset: who makes the row need not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_toml: Option<String>,
    /// The policy.
    pub policy: String,
    /// The workload.
    pub workload: String,
    /// Beginning of the hash of the file that it plays; empty if it plays none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file_id: String,
    /// What its kernel does differently from every policy; empty: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// How many CPUs take part; without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<u32>,
    /// What random choices start from.
    pub seed: u64,
    /// Time before measuring, in microseconds of virtual time.
    pub warm_us: u64,
    /// Measured time, in microseconds of virtual time.
    pub run_us: u64,
}

/// Characters of the ids of machines and files.
const ID: usize = 12;

/// A machine that runs of a sweep take.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) machine: Machine,
    id: String,
    /// Its file, where it is no preset.
    toml: Option<String>,
}

impl Known {
    pub(super) fn new(name: &str, machine: Machine) -> Known {
        let toml = machine.to_toml();
        let preset = Machine::named(name).is_ok_and(|preset| preset.to_toml() == toml);
        Known { machine, id: id_of(&toml), toml: (!preset).then_some(toml) }
    }
}

impl RowText {
    pub(super) fn new(recipe: &Recipe, known: &Known, file_id: &str) -> RowText {
        // Every part of a recipe is a part of its row: no field is left out here.
        let Recipe { machine, policy, workload, variant, busy, seed, warm_us, run_us } =
            recipe.clone();
        RowText {
            version: version().to_owned(),
            machine,
            machine_id: known.id.clone(),
            machine_toml: known.toml.clone(),
            policy,
            workload,
            file_id: file_id.to_owned(),
            variant,
            busy,
            seed,
            warm_us,
            run_us,
        }
    }

    /// The row of a line that [`Sweep::texts`](super::Sweep::texts) gave.
    ///
    /// # Errors
    /// A line that is none, and one of another version of the program.
    pub fn parse(line: &str) -> Result<RowText, LabError> {
        let wrong = |error: serde_json::Error| {
            let found: String = line.chars().take(60).collect();
            LabError::Plan(format!(
                "row '{found}': {error}; expected a line of `zonal lab sweep --list`"
            ))
        };
        let text: RowText = serde_json::from_str(line).map_err(wrong)?;
        check_version(&text.version)?;
        Ok(text)
    }

    /// What tells it from other rows: every field but the machine's file, whose hash is there.
    pub(super) fn key(&self) -> [String; KEY_COLUMNS] {
        [
            self.version.clone(),
            self.machine.clone(),
            self.machine_id.clone(),
            self.policy.clone(),
            self.workload.clone(),
            self.file_id.clone(),
            self.variant.clone(),
            self.busy.map_or_else(String::new, |busy| busy.to_string()),
            self.seed.to_string(),
            self.warm_us.to_string(),
            self.run_us.to_string(),
        ]
    }

    /// The run as people write it.
    pub fn recipe(&self) -> Recipe {
        Recipe {
            machine: self.machine.clone(),
            policy: self.policy.clone(),
            workload: self.workload.clone(),
            variant: self.variant.clone(),
            busy: self.busy,
            seed: self.seed,
            warm_us: self.warm_us,
            run_us: self.run_us,
        }
    }

    /// Makes the run. The same text gives the same row, to the last digit, in every process.
    ///
    /// # Errors
    /// A machine or a file that is not the one the text was made with, or a run that cannot be.
    pub fn run(&self) -> Result<Row, LabError> {
        let machine = match &self.machine_toml {
            Some(toml) => Machine::parse(toml)?,
            None => Machine::named(&self.machine)?,
        };
        let (found, name) = (id_of(&machine.to_toml()), &self.machine);
        if found != self.machine_id {
            return Err(LabError::Plan(format!(
                "machine {name} is {found} here and {} in the row; expected the same figures",
                self.machine_id
            )));
        }
        let recipe = self.recipe();
        let plan = recipe.plan(&|_| Ok(machine.clone()))?;
        let found = file_id(&plan.workload)?;
        if found != self.file_id {
            return Err(LabError::Plan(format!(
                "the file of {} is {found} here and {} in the row; expected the same bytes",
                self.workload, self.file_id
            )));
        }
        let figures = plan.run()?;
        Ok(Row::new(&self.key(), recipe.command(), &plan.machine, &figures))
    }
}

fn id_of(text: &str) -> String {
    hex(&Sha256::digest(text))[..ID].to_owned()
}

/// Beginning of the hash of the file that a workload plays, or of the files of its folder; empty
/// if it plays none. A file is read again when its size or time changed.
pub(super) fn file_id(workload: &Workload) -> Result<String, LabError> {
    let Some(file) = workload.file() else { return Ok(String::new()) };
    let path = Path::new(file);
    let wrong = |error: io::Error| LabError::Plan(format!("{file}: cannot be read: {error}"));
    let files = files(path).map_err(wrong)?;
    let stamp = format!("{file} {files:?}");
    static HASHES: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let hashes = || HASHES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = hashes().get(&stamp) {
        return Ok(known.clone());
    }
    let mut hash = Sha256::new();
    for (name, ..) in &files {
        let at = if name.is_empty() { path.to_owned() } else { path.join(name) };
        hash.update(format!("{name}\n"));
        let mut input = fs::File::open(at).map_err(wrong)?;
        io::copy(&mut input, &mut Hashed(&mut hash)).map_err(wrong)?;
    }
    let id = hex(&hash.finalize())[..ID].to_owned();
    hashes().insert(stamp, id.clone());
    Ok(id)
}

type Stamp = (String, u64, Option<std::time::SystemTime>);

/// The files of a path by name, with size and time; the name of a single file is empty.
fn files(path: &Path) -> io::Result<Vec<Stamp>> {
    let stamp = |name: String, data: &fs::Metadata| (name, data.len(), data.modified().ok());
    let data = fs::metadata(path)?;
    if !data.is_dir() {
        return Ok(vec![stamp(String::new(), &data)]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let data = fs::metadata(entry.path())?;
        if data.is_file() {
            found.push(stamp(entry.file_name().to_string_lossy().into_owned(), &data));
        }
    }
    found.sort_unstable();
    Ok(found)
}

struct Hashed<'a>(&'a mut Sha256);

impl io::Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
