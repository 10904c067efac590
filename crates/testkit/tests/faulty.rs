//! The scripted source: each fault looks to its reader as the real thing would. The clock is paused: nothing
//! here waits.

use std::sync::Arc;
use std::time::Duration;

use pagein_source::{Retry, Source, SourceError, fetch};
use pagein_testkit::{Fault, FaultySource, MemorySource};
use tokio::time::Instant;

const OBJECT: &[u8] = b"0123456789";

fn memory() -> Arc<dyn Source> {
    Arc::new(MemorySource::new([("hot", OBJECT)]).chunked(3))
}

fn faulty(faults: &[Fault]) -> FaultySource {
    let faults = faults.to_vec();
    FaultySource::new(memory(), move |_, _| faults.clone())
}

async fn get(faults: &[Fault], range: Option<std::ops::Range<u64>>) -> Result<Vec<u8>, SourceError> {
    let len = range.as_ref().map_or(10, |range| range.end - range.start);
    fetch(&faulty(faults), "hot", range, len, &Retry::never()).await
}

#[tokio::test(start_paused = true)]
async fn memory_answers_as_real_sources_do() {
    let source = memory();
    let retry = Retry::never();
    assert_eq!(fetch(&*source, "hot", None, 10, &retry).await.unwrap(), OBJECT);
    assert_eq!(fetch(&*source, "hot", Some(2..9), 7, &retry).await.unwrap(), b"2345678");
    assert_eq!((source.wire().requests, source.wire().bytes), (2, 17));
    assert_eq!(fetch(&*source, "hot", Some(99..99), 0, &retry).await.unwrap(), b"");
    assert!(matches!(source.get("cold", None).await, Err(SourceError::NotFound { .. })));
    let short = source.get("hot", Some(8..12)).await.unwrap_err();
    assert!(matches!(short, SourceError::Truncated { expected: 4, got: 2, .. }), "{short}");
    let mut body = source.get("hot", None).await.unwrap();
    assert_eq!((body.len(), body.chunk().await.unwrap().unwrap().len()), (Some(10), 3));
}

#[tokio::test(start_paused = true)]
async fn heads() {
    assert_eq!(get(&[], None).await.unwrap(), OBJECT);
    assert!(matches!(get(&[Fault::Status(404)], None).await, Err(SourceError::NotFound { .. })));
    assert!(matches!(get(&[Fault::Status(503)], None).await, Err(SourceError::Status { code: 503, .. })));
    assert!(matches!(get(&[Fault::Refuse], None).await, Err(SourceError::Connect { .. })));
    let ignore = &[Fault::IgnoreRange];
    assert!(matches!(get(ignore, Some(1..3)).await, Err(SourceError::RangeIgnored { .. })));
    assert_eq!(get(ignore, Some(0..10)).await.unwrap(), OBJECT);
    assert_eq!(get(ignore, None).await.unwrap(), OBJECT);
    assert!(matches!(get(&[Fault::WrongRange], Some(1..3)).await, Err(SourceError::WrongRange { .. })));
}

#[tokio::test(start_paused = true)]
async fn times() {
    let start = Instant::now();
    assert_eq!(get(&[Fault::Delay(Duration::from_secs(3))], None).await.unwrap(), OBJECT);
    assert_eq!(start.elapsed().as_secs(), 3);
    for bytes in [0, 4] {
        let start = Instant::now();
        let source = FaultySource::new(memory(), move |_, _| vec![Fault::StallAfter(bytes)])
            .stall(Duration::from_secs(7));
        let error = fetch(&source, "hot", None, 10, &Retry::never()).await.unwrap_err();
        assert!(matches!(error, SourceError::Stalled { got, .. } if got == bytes), "{error}");
        assert_eq!(start.elapsed().as_secs(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn bodies() {
    let cut = get(&[Fault::CloseAfter(4)], None).await.unwrap_err();
    assert!(matches!(cut, SourceError::Truncated { expected: 10, got: 4, .. }), "{cut}");
    let endless = get(&[Fault::Endless], None).await.unwrap_err();
    assert!(matches!(endless, SourceError::TooLong { expected: 10, .. }), "{endless}");
    let flipped = get(&[Fault::Flip(4)], None).await.unwrap();
    assert_eq!(flipped, [b"0123", [!b'4'].as_slice(), b"56789"].concat());
    assert_eq!(get(&[Fault::Flip(4)], Some(4..6)).await.unwrap(), [!b'4', b'5']);
    assert_eq!(get(&[Fault::Flip(4)], Some(5..7)).await.unwrap(), b"56");
}

#[tokio::test(start_paused = true)]
async fn scripts_see_the_object_and_the_count() {
    let source = FaultySource::new(memory(), |object, nth| match (object, nth) {
        ("hot", 1) => vec![Fault::Status(503)],
        ("hot", 2) => vec![Fault::Delay(Duration::from_secs(1)), Fault::CloseAfter(9)],
        _ => vec![],
    });
    let retry = Retry { attempts: 3, ..Retry::default() };
    assert_eq!(fetch(&source, "hot", None, 10, &retry).await.unwrap(), OBJECT);
    assert_eq!((source.asked("hot"), source.asked("cold")), (3, 0));

    let gone = FaultySource::new(memory(), |_, _| vec![Fault::Status(500)]);
    let error = fetch(&gone, "hot", None, 10, &retry).await.unwrap_err();
    assert_eq!((error.attempts(), gone.asked("hot")), (3, 3));
    assert!(matches!(error.kind(), SourceError::Status { code: 500, .. }), "{error}");
}
