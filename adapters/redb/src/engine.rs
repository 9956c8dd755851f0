//! What the backend needs of the engine, in one place: `cargo xtask engine` compiles `cached`
//! inside redb, with redb's own items in place of these.

pub use redb::{BackendError, StorageBackend};
