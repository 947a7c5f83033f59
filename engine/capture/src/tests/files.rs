//! Files that were cut or damaged.

use super::*;
use crate::{FORMAT, FormatError, read};

#[test]
fn a_file_cut_anywhere_is_readable_to_its_last_whole_record() {
    let bytes = recorded(&Options {
        num_requests: 1,
        ..Options::default()
    });
    let whole = read(&bytes).expect("a capture");
    assert!(whole.records.len() > 10);
    let mut lens = Vec::new();
    for len in 0..bytes.len() {
        match read(&bytes[..len]) {
            Err(FormatError::NoCapture) => assert!(len < 18),
            Err(FormatError::Header(damage)) => assert!(damage.is_cut, "{len}: {damage}"),
            Err(error) => panic!("{len}: {error}"),
            Ok(part) => {
                let num = part.records.len();
                assert_eq!(part.records, whole.records[..num]);
                if let Some(damage) = &part.damage {
                    assert!(damage.is_cut && damage.num_records == num, "{damage}");
                    assert!(damage.offset < len);
                }
                lens.push((num, part.damage.is_none()));
            }
        }
    }
    let clean = lens.iter().filter(|own| own.1).count();
    assert_eq!(
        clean,
        whole.records.len(),
        "one clean end after each record but the last"
    );
}

#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let bytes = recorded(&Options {
        num_requests: 1,
        ..Options::default()
    });
    let whole = read(&bytes).expect("a capture");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match read(&damaged) {
            Err(_) => {}
            Ok(part) => {
                let damage = part.damage.expect("a flipped bit is damage");
                assert!(damage.offset <= at, "{damage}");
                assert_eq!(part.records, whole.records[..damage.num_records]);
            }
        }
    }
}

#[test]
fn what_is_none_is_refused_by_what_it_is() {
    assert_eq!(read(b""), Err(FormatError::NoCapture));
    assert_eq!(read(&[0; 100]), Err(FormatError::NoCapture));
    let mut newer = recorded(&Options::default());
    newer[16..18].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    let error = read(&newer).expect_err("a later format");
    assert_eq!(error, FormatError::Newer { format: FORMAT + 1 });
}
