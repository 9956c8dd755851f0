//! Zones: their frames and buddy under one lock, their watermarks, and the watermark test.

pub mod background;
pub mod budget;
pub mod deferred;
pub(crate) mod epoch;
pub mod reclaim;
pub mod state;
pub(crate) mod steady;
pub mod watermark;
