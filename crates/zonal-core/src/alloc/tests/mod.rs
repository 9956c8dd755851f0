//! Whole allocators under test.

mod double_free;
mod exhaustive;
mod home;
mod model;
mod paths;
mod placement;
mod pressure;
mod programs;
mod refresh;
mod refusal;
mod tuning;
mod word_path;
