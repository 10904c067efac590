//! The misbehaving server, seen by the real HTTP source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagein_source::{Location, Options, Retry, Source, SourceError, fetch, open};
use pagein_testkit::{Fault, Origin, Request, Rule};

struct Setup {
    origin: Origin,
    source: Arc<dyn Source>,
    object: Vec<u8>,
    _dir: tempfile::TempDir,
}

fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let object: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::create_dir(dir.path().join("img")).unwrap();
    std::fs::write(dir.path().join("img/hot"), &object).unwrap();
    std::fs::write(dir.path().join("img/cold"), b"cold").unwrap();
    let origin = Origin::serve(dir.path());
    let options = Options { stall: Duration::from_millis(300), proxy: false, ..Options::default() };
    let source = open(&Location::parse(&origin.url("img")).unwrap(), &options).unwrap();
    Setup { origin, source, object, _dir: dir }
}

impl Setup {
    async fn hot(&self) -> Result<Vec<u8>, SourceError> {
        fetch(&*self.source, "hot", None, 100_000, &Retry::never()).await
    }

    async fn part(&self) -> Result<Vec<u8>, SourceError> {
        fetch(&*self.source, "hot", Some(10..20), 10, &Retry::never()).await
    }

    fn only(&self, fault: Fault) {
        self.origin.clear();
        self.origin.rule(Rule::new("img/h*", fault));
    }
}

#[tokio::test]
async fn serves_files_and_ranges() {
    let s = setup();
    assert_eq!(s.hot().await.unwrap(), s.object);
    assert_eq!(s.part().await.unwrap(), s.object[10..20]);
    assert!(matches!(s.source.get("absent", None).await, Err(SourceError::NotFound { .. })));
    let requests = s.origin.requests();
    assert_eq!(requests[0], Request { path: "img/hot".into(), range: None });
    assert_eq!(requests[1], Request { path: "img/hot".into(), range: Some(10..20) });
    assert_eq!((requests.len(), s.origin.sent()), (3, 100_010));
}

#[tokio::test]
async fn every_fault_arrives_as_its_error() {
    let s = setup();
    s.only(Fault::Status(410));
    assert!(matches!(s.hot().await, Err(SourceError::NotFound { .. })));
    s.only(Fault::IgnoreRange);
    assert!(matches!(s.part().await, Err(SourceError::RangeIgnored { .. })));
    s.only(Fault::WrongRange);
    assert!(matches!(s.part().await, Err(SourceError::WrongRange { .. })));
    for bytes in [0, 40_000] {
        s.only(Fault::StallAfter(bytes));
        let start = Instant::now();
        let error = s.hot().await.unwrap_err();
        assert!(matches!(error, SourceError::Stalled { got, .. } if got == bytes), "{error:?}");
        assert!((300..3000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
    s.only(Fault::Endless);
    assert!(matches!(s.hot().await, Err(SourceError::TooLong { expected: 100_000, .. })));
    assert!(matches!(s.part().await, Err(SourceError::TooLong { expected: 10, .. })));
    s.only(Fault::CloseAfter(40_000));
    let error = s.hot().await.unwrap_err();
    assert!(matches!(error, SourceError::Truncated { expected: 100_000, got: 40_000, .. }), "{error:?}");
    s.only(Fault::Flip(15));
    let part = s.part().await.unwrap();
    assert_eq!((part[4], part[5], part[6]), (s.object[14], !s.object[15], s.object[16]));
    s.only(Fault::Delay(Duration::from_millis(60)));
    let start = Instant::now();
    assert_eq!(s.hot().await.unwrap(), s.object);
    assert!(start.elapsed() >= Duration::from_millis(60));
    s.only(Fault::Status(404));
    assert_eq!(fetch(&*s.source, "cold", None, 4, &Retry::never()).await.unwrap(), b"cold");
    s.origin.clear();
    assert_eq!(s.hot().await.unwrap(), s.object);
}

#[tokio::test]
async fn unavailable_for_the_first_requests() {
    let s = setup();
    s.origin.rule(Rule::new("*", Fault::Status(503)).times(2));
    let retry = Retry { attempts: 3, first: Duration::from_millis(5), longest: Duration::from_millis(10) };
    assert_eq!(fetch(&*s.source, "hot", None, 100_000, &retry).await.unwrap(), s.object);
    assert_eq!(s.source.wire().requests, 3);
}

#[tokio::test]
async fn goes_away_and_comes_back() {
    let s = setup();
    for _ in 0..3 {
        assert_eq!(s.hot().await.unwrap(), s.object);
        s.origin.refuse();
        let error = s.hot().await.unwrap_err();
        assert!(matches!(error, SourceError::Connect { .. } | SourceError::Broken { .. }), "{error:?}");
        // The pooled connection is certainly known to be gone by now.
        let error = s.hot().await.unwrap_err();
        assert!(matches!(error, SourceError::Connect { .. }), "{error:?}");
        s.origin.come_back();
    }
    assert_eq!(s.hot().await.unwrap(), s.object);
}

#[tokio::test]
async fn dies_by_itself_after_some_bytes() {
    let s = setup();
    s.origin.rule(Rule::new("*", Fault::Refuse).after_bytes(100_000));
    assert_eq!(s.hot().await.unwrap(), s.object);
    let error = s.part().await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert!(matches!(s.part().await, Err(SourceError::Connect { .. })));
}

#[tokio::test]
async fn refusing_cuts_what_is_in_flight() {
    let s = setup();
    s.only(Fault::StallAfter(40_000));
    let mut body = s.source.get("hot", None).await.unwrap();
    assert!(body.chunk().await.unwrap().is_some());
    s.origin.refuse();
    let error = loop {
        match body.chunk().await {
            Ok(chunk) => assert!(chunk.is_some(), "ended without an error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SourceError::Truncated { .. } | SourceError::Broken { .. }), "{error:?}");
}

#[test]
fn ends_when_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let origin = Origin::serve(dir.path());
    let address = origin.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let open = std::net::TcpStream::connect(&address).unwrap();
    let start = Instant::now();
    drop(origin);
    assert!(start.elapsed() < Duration::from_secs(2), "an open connection held it up");
    assert!(std::net::TcpStream::connect(&address).is_err());
    drop(open);
}
