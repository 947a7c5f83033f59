//! Philox 4x32-10, the counter-based noise of the sampler.
//!
//! Must never hold state: a draw is a function of (seed, position), so nothing has to be rolled
//! back when a draft is rejected.

/// The block function: counter and key to four 32-bit words, ten rounds.
pub const fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < 10 {
        let a = 0xd251_1f53_u64 * counter[0] as u64;
        let b = 0xcd9e_8d57_u64 * counter[2] as u64;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
        round += 1;
    }
    counter
}

/// The 64-bit draw of a seed at a position of its sequence.
///
/// Counter: (position low, position high, 0, 0); key: (seed low, seed high); result: word 0 as the
/// low half, word 1 as the high half.
pub const fn draw_u64(seed: u64, position: u64) -> u64 {
    let counter = [position as u32, (position >> 32) as u32, 0, 0];
    let out = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
    out[0] as u64 | (out[1] as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with Random123.
    #[test]
    fn known_answers() {
        let all = u32::MAX;
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([all; 4], [all; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_draw_is_the_first_two_words() {
        assert_eq!(draw_u64(0, 0), 0xe169_c58d_6627_e8d5);
        assert_ne!(draw_u64(1, 0), draw_u64(0, 1));
        assert_ne!(draw_u64(1 << 32, 0), draw_u64(1, 0));
    }
}
