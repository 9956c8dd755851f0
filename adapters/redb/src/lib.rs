//! [redb] on the pages of a zonal pool: a storage backend whose pages are an
//! [`EngineCache`](zonal_cache::EngineCache)'s.
//!
//! redb has a cache of its own above its storage backend; give it little and this one much, and the
//! memory of all databases of a process is one budget, which other users of the pool share.
//!
//! ```
//! use std::sync::Arc;
//! use redb::{Database, ReadableDatabase, TableDefinition, backends::FileBackend};
//! use zonal_cache::EngineCache;
//!
//! const TABLE: TableDefinition<&str, u64> = TableDefinition::new("numbers");
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let file = tempfile::tempfile()?;
//! let pool = Arc::new(zonal::Pool::builder().size(16 << 20).build()?);
//! let cache = EngineCache::builder(pool).page_bytes(16 << 10).build()?;
//! let storage = zonal_redb::Cached::new(FileBackend::new(file)?, &cache)?;
//! let database = Database::builder().set_cache_size(1 << 20).create_with_backend(storage)?;
//! let write = database.begin_write()?;
//! write.open_table(TABLE)?.insert("answer", 42)?;
//! write.commit()?; // a checkpoint of the pager
//! assert_eq!(database.begin_read()?.open_table(TABLE)?.get("answer")?.unwrap().value(), 42);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo xtask engine` runs redb's own tests on it: every file that its tests open goes through
//! `Cached`, in one small cache for all, so that pages are evicted all the time.

mod cached;
mod engine;

pub use cached::Cached;
