//! Rings on disk: what is in them is what was recorded, one request can be taken out, and they stay within their bound.

use super::*;
use crate::{Ring, RingError, RingOptions, Sink, read, read_folder};
use std::path::Path;

fn ring(folder: &Path, bytes_max: u64) -> Ring {
    let options = RingOptions {
        folder: folder.to_path_buf(),
        bytes_max,
        waiting_bytes_max: 1 << 26,
    };
    Ring::begin(options, header(&Options::default(), limits())).expect("a folder")
}

/// Hands all records of a run to a ring.
fn fill(ring: &Arc<Ring>, options: &Options) {
    record_into(options, ring.clone());
    ring.flush();
}

#[test]
fn a_ring_holds_what_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options::default();
    let ring = Arc::new(ring(folder.path(), 1 << 30));
    fill(&ring, &options);
    let whole = read(&recorded(&options)).expect("a capture");
    let found = read_folder(folder.path()).expect("a ring");
    assert_eq!(found.records, whole.records);
    assert_eq!(ring.losses(), (0, 0));
    let replays = replayed(&Capture::new(found), 4);
    assert_eq!(replays.guilty(), None);
}

#[test]
fn one_request_can_be_taken_out_and_replayed_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let ring = Arc::new(ring(folder.path(), 1 << 30));
    let options = Options {
        num_requests: 9,
        ..Options::default()
    };
    fill(&ring, &options);
    let whole = capture(&options);
    for idx in 0..9 {
        let id = format!("request-{idx}");
        let bytes = ring.of_request(&id).expect("it is there");
        let own = Capture::of_bytes(&bytes).expect("a capture");
        assert_eq!(own.oddities, Vec::<String>::new());
        let seqs = whole.seqs_of(&id);
        assert_eq!(own.seqs_of(&id), seqs);
        assert_eq!(own.requests.len(), 1);
        let parts = own.steps.values().flat_map(|step| &step.plan.seqs);
        assert!(parts.clone().count() > 0 && parts.clone().all(|part| part.seq == seqs[0]));
        assert!(own.events.iter().all(|(_, event)| event.seq == seqs[0]));
        let verdict = replayed(&own, 2);
        assert_eq!(verdict.guilty(), None, "{id}");
        assert!(verdict.at(Stage::Logits).passes());
    }
    let error = ring.of_request("request-9").expect_err("nobody asked that");
    assert!(matches!(error, RingError::Unknown));
}

#[test]
fn a_ring_stays_within_its_bound_and_says_what_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let bound = 200_000;
    let ring = Arc::new(ring(folder.path(), bound));
    let options = Options {
        num_requests: 200,
        ..Options::default()
    };
    fill(&ring, &options);
    let sizes = std::fs::read_dir(folder.path()).expect("a folder");
    let sizes = sizes.map(|own| own.and_then(|own| own.metadata()).expect("a file").len());
    let total: u64 = sizes.sum();
    assert!(
        total > bound / 2 && total < bound * 5 / 4,
        "{total} of {bound} bytes"
    );
    let gone = ring.of_request("request-0").expect_err("it is long ago");
    assert!(
        matches!(gone, RingError::Gone | RingError::Unknown),
        "{gone}"
    );
    // Nor does the index grow with what is gone.
    let known = (0..200).filter(|idx| {
        let error = ring.of_request(&format!("request-{idx}")).err();
        !matches!(error, Some(RingError::Unknown))
    });
    assert!(known.count() < 150);
    let bytes = ring.of_request("request-199").expect("the last one");
    let verdict = replayed(&Capture::of_bytes(&bytes).expect("a capture"), 1);
    assert_eq!(verdict.guilty(), None);
    // The beginning is missing, and what is left is judged as far as it goes.
    let rest = read_folder(folder.path()).expect("a ring");
    assert!(!rest.header.is_whole);
}

#[test]
fn what_comes_too_fast_is_lost_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = RingOptions {
        folder: folder.path().to_path_buf(),
        bytes_max: 1 << 30,
        waiting_bytes_max: 100,
    };
    let ring = Ring::begin(options, header(&Options::default(), limits())).expect("a folder");
    let small = crate::framed(&crate::Record::End("a".to_string()));
    ring.take(vec![0; 101], crate::About::Loop);
    ring.take(small.clone(), crate::About::Loop);
    ring.flush();
    assert_eq!(ring.losses(), (1, 0));
    let found = read_folder(folder.path()).expect("a ring");
    let end = crate::Record::End("a".to_string());
    assert_eq!(found.records, [crate::Record::Lost(1), end]);
    let odd = Capture::new(found).oddities;
    assert_eq!(odd, ["record 0: 1 records are missing here"]);
    drop(ring);
    let again = RingOptions {
        folder: folder.path().to_path_buf(),
        bytes_max: 1,
        waiting_bytes_max: 1,
    };
    let error = Ring::begin(again, header(&Options::default(), limits()));
    assert!(
        error
            .err()
            .is_some_and(|own| own.to_string().contains("captures already"))
    );
}
