//! The words that touching writes, and the generator and hash that all loops share.

use crate::subject::PAGE;

/// Writes one word in every page of the block, at an offset spread by page number.
#[inline(always)]
pub(crate) fn touch(block: *mut u8, order: u32) {
    for page in 0..1usize << order {
        let word = spread_word(block, page);
        // SAFETY: the block is `4096 << order` bytes, allocated and ours until we free it; the
        // word lies in its page number `page` and is 8-aligned because the block is 4096-aligned.
        unsafe { word.write_volatile(page as u64) };
    }
}

/// The word of `page` (counted within the block) that touching writes.
#[inline(always)]
pub(crate) fn spread_word(block: *mut u8, page: usize) -> *mut u64 {
    let line = ((block as usize / PAGE) + page) % 64;
    block.wrapping_add(page * PAGE + line * 64).cast::<u64>()
}

/// The splitmix64 generator: small, seedable, the same everywhere.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    finalise(*state)
}

/// Folds `word` into `hash`.
pub(crate) fn mix_hash(hash: u64, word: u64) -> u64 {
    finalise(hash.rotate_left(5) ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
