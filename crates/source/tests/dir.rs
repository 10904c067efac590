//! The directory source against real files.

use std::os::unix::fs::symlink;

use pagein_source::{Location, Options, Retry, Source, SourceError, fetch, open};

fn object() -> Vec<u8> {
    (0..700_001u32).map(|i| (i % 251) as u8).collect()
}

fn image() -> (tempfile::TempDir, std::sync::Arc<dyn Source>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("pages/ab")).unwrap();
    std::fs::write(dir.path().join("hot"), object()).unwrap();
    std::fs::write(dir.path().join("pages/ab/abc"), b"page").unwrap();
    let location = Location::parse(dir.path().to_str().unwrap()).unwrap();
    let source = open(&location, &Options::default()).unwrap();
    (dir, source)
}

#[tokio::test]
async fn whole_and_ranges() {
    let (_dir, source) = image();
    let all = object();
    let retry = Retry::never();
    let whole = fetch(&*source, "hot", None, all.len() as u64, &retry).await.unwrap();
    assert_eq!(whole, all);
    for range in [0..1, 5..300_000, 262_143..262_145, 700_000..700_001] {
        let len = range.end - range.start;
        let part = fetch(&*source, "hot", Some(range.clone()), len, &retry).await.unwrap();
        assert_eq!(part, all[range.start as usize..range.end as usize]);
    }
    assert_eq!(fetch(&*source, "pages/ab/abc", None, 4, &retry).await.unwrap(), b"page");
    let before = source.wire();
    assert_eq!(before.requests, 6);
    assert!(before.bytes > 1_000_000 && before.first_byte_min.is_some());
    assert_eq!(fetch(&*source, "hot", Some(7..7), 0, &retry).await.unwrap(), b"");
    assert_eq!(source.wire(), before, "an empty range needs no request");
}

#[tokio::test]
async fn missing_short_and_forbidden() {
    let (dir, source) = image();
    let missing = source.get("cold", None).await.unwrap_err();
    let path = dir.path().join("cold").display().to_string();
    assert_eq!(missing, SourceError::NotFound { place: path.clone() });
    assert!(missing.to_string().contains(&path));
    assert!(matches!(source.get("hot/x", None).await, Err(SourceError::NotFound { .. })));

    let short = source.get("hot", Some(700_000..700_010)).await.unwrap_err();
    assert!(matches!(short, SourceError::Truncated { expected: 10, got: 1, .. }), "{short}");
    let beyond = source.get("hot", Some(800_000..800_010)).await.unwrap_err();
    assert!(matches!(beyond, SourceError::Truncated { expected: 10, got: 0, .. }), "{beyond}");
    assert!(matches!(
        fetch(&*source, "hot", None, 5, &Retry::never()).await,
        Err(SourceError::TooLong { expected: 5, .. })
    ));

    for name in ["../hot", "/etc/passwd", "pages/../hot", ""] {
        let error = source.get(name, None).await.unwrap_err();
        assert!(matches!(error, SourceError::BadName { .. }), "{error}");
    }
    assert!(matches!(source.get("pages", None).await, Err(SourceError::Io { .. })));
    symlink("loop", dir.path().join("loop")).unwrap();
    assert!(matches!(source.get("loop", None).await, Err(SourceError::Io { .. })));
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_is_truncated() {
    let (dir, source) = image();
    let mut body = source.get("hot", None).await.unwrap();
    let first = body.chunk().await.unwrap().unwrap().len() as u64;
    std::fs::File::options().write(true).open(dir.path().join("hot")).unwrap().set_len(first).unwrap();
    let error = body.chunk().await.unwrap_err();
    assert!(
        matches!(error, SourceError::Truncated { expected: 700_001, got, .. } if got == first),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_that_is_replaced_is_read_on() {
    let (dir, source) = image();
    let mut body = source.get("hot", None).await.unwrap();
    let mut all = body.chunk().await.unwrap().unwrap().to_vec();
    std::fs::write(dir.path().join("new"), b"new").unwrap();
    std::fs::rename(dir.path().join("new"), dir.path().join("hot")).unwrap();
    while let Some(bytes) = body.chunk().await.unwrap() {
        all.extend_from_slice(&bytes);
    }
    assert_eq!(all, object());
}
