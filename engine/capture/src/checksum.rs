//! Checksums: of records, so that a file tells where it is damaged, and of text that is left out.

use lockstep_step::Digest;

/// CRC-32 as of zlib and Ethernet: polynomial 0xedb88320, all ones before and after.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |crc, byte| {
        (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize]
    })
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut idx = 0;
    while idx < 256 {
        let mut crc = idx as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = match crc & 1 {
                1 => 0xedb8_8320 ^ (crc >> 1),
                _ => crc >> 1,
            };
            bit += 1;
        }
        table[idx] = crc;
        idx += 1;
    }
    table
}

/// Spreads the bits of a word over all of it; no two words become one.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A 64-bit digest of bytes. It is no secret: short texts can be guessed from it.
pub fn digest(bytes: &[u8]) -> Digest {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    };
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    Digest(words.fold(mix(0x7465_7874, bytes.len() as u64), mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The check value of the algorithm's catalogue.
        assert_eq!(crc32(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[]), 0);
    }

    #[test]
    fn each_byte_matters_to_the_digest() {
        let text = *b"a few words of text";
        let mut seen = std::collections::BTreeSet::from([digest(&text)]);
        for at in 0..text.len() {
            let mut other = text;
            other[at] ^= 1;
            assert!(seen.insert(digest(&other)), "byte {at}");
            assert!(seen.insert(digest(&text[..at])), "the first {at} bytes");
        }
    }
}
