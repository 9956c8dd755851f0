//! The frame allocator of this kernel.

#[cfg(feature = "zonal")]
pub use zonal_ostd::FRAMES;

/// The default one, which OSTD's tool links in where there is no other.
#[cfg(not(feature = "zonal"))]
pub static FRAMES: osdk_frame_allocator::FrameAllocator = osdk_frame_allocator::FrameAllocator;
