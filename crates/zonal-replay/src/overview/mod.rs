//! One page of a recording: the verdict, and what the allocator did over time, by order, by thread
//! and by kind of request. The figures are counted in the recording, but for those of the verdict,
//! which are the model's.
//!
//! | file | does |
//! |--|--|
//! | `gather` | the figures, in one pass over the events |
//! | `plot` | curves and bars as SVG, in the page's light and dark colours |
//! | `page` | the page, with a sentence for each plot |

mod gather;
mod page;
pub(crate) mod plot;

pub use self::gather::Overview;
pub use self::page::html;
