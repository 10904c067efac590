//! What the server answers, byte by byte, over HTTP/1.1 and HTTP/2.

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use bytes::Bytes;
use common::{Reply, Site, pattern, within};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// More than a chunk, and not a multiple of one.
const LARGE: usize = 1_500_001;

#[tokio::test]
async fn a_whole_file() {
    let site = Site::new().await;
    let content = pattern(LARGE);
    site.put("git/hot", &content);
    let reply = site.get("/git/hot", "").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("content-length"), LARGE.to_string());
    assert_eq!(reply.field("accept-ranges"), "bytes");
    assert_eq!(reply.field("content-type"), "application/octet-stream");
    assert_eq!(reply.field("cache-control"), "public, no-cache, no-transform");
    assert!(reply.field("etag").starts_with('"') && reply.field("etag").ends_with('"'), "{reply:?}");
    assert!(httpdate::parse_http_date(reply.field("last-modified")).is_ok());
    assert!(reply.body == content);
}

#[tokio::test]
async fn an_empty_file() {
    let site = Site::new().await;
    site.put("empty", b"");
    let reply = site.get("/empty", "").await;
    assert_eq!((reply.status, reply.field("content-length")), (200, "0"));
    let reply = site.get("/empty", "Range: bytes=0-\r\n").await;
    assert_eq!((reply.status, reply.field("content-range")), (416, "bytes */0"));
}

#[tokio::test]
async fn one_connection_answers_many_requests() {
    let site = Site::new().await;
    let content = pattern(LARGE);
    site.put("cold", &content);
    let mut client = site.connect().await;
    for i in 0..40 {
        let start = i * 32768;
        let reply =
            client.request("GET", "/cold", &format!("Range: bytes={start}-{}\r\n", start + 32767)).await;
        assert_eq!(reply.status, 206);
        assert!(reply.body == content[start..start + 32768]);
    }
    assert_eq!(client.request("GET", "/missing", "").await.status, 404);
    // Two requests in one packet are two responses in their order.
    client
        .send(
            "GET",
            "/cold",
            "Range: bytes=0-9\r\n\r\nGET /cold HTTP/1.1\r\nHost: x\r\nRange: bytes=10-19\r\n",
        )
        .await;
    assert_eq!(client.reply("GET").await.unwrap().body, content[..10]);
    assert_eq!(client.reply("GET").await.unwrap().body, content[10..20]);
}

#[tokio::test]
async fn single_ranges() {
    let site = Site::new().await;
    let content = pattern(LARGE);
    site.put("cold", &content);
    for (range, start, end) in [
        ("0-0", 0, 1),
        ("0-32767", 0, 32768),
        ("100-", 100, LARGE),
        ("-100", LARGE - 100, LARGE),
        ("-99999999", 0, LARGE),
        ("262143-262144", 262_143, 262_145),
        ("1000-900000", 1000, 900_001),
        ("1500000-99999999999999999999999", 1_500_000, LARGE),
        ("10-19,20-29", 10, 30),
        ("10-19,99999999-", 10, 20),
    ] {
        let reply = site.get("/cold", &format!("Range: bytes={range}\r\n")).await;
        assert_eq!(reply.status, 206, "{range}");
        assert_eq!(reply.field("content-range"), format!("bytes {start}-{}/{LARGE}", end - 1), "{range}");
        assert_eq!(reply.field("content-type"), "application/octet-stream");
        assert!(reply.body == content[start..end], "{range}");
    }
}

#[tokio::test]
async fn ranges_that_select_nothing_or_are_ignored() {
    let site = Site::new().await;
    site.put("cold", &pattern(1000));
    for range in ["bytes=1000-", "bytes=-0", "bytes=5000-6000,2000-"] {
        let reply = site.get("/cold", &format!("Range: {range}\r\n")).await;
        assert_eq!((reply.status, reply.field("content-range")), (416, "bytes */1000"), "{range}");
        assert_ne!(reply.field("etag"), "");
    }
    let too_many: Vec<String> = (0..300).map(|i| format!("{i}-{i}")).collect();
    let too_many = format!("bytes={}", too_many.join(","));
    for range in ["bytes=9-1", "bytes=a-b", "lines=0-1", "bytes", "bytes=0-1\r\nRange: bytes=2-3", &too_many]
    {
        let reply = site.get("/cold", &format!("Range: {range}\r\n")).await;
        assert_eq!((reply.status, reply.body.len()), (200, 1000), "{range}");
        assert_eq!(reply.field("content-range"), "");
    }
}

/// Takes a multipart body apart: `(Content-Range, bytes)` per part.
fn parts(reply: &Reply) -> Vec<(String, Vec<u8>)> {
    let boundary = reply.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
    let delimiter = format!("--{boundary}");
    let find = |body: &[u8], what: &[u8]| body.windows(what.len()).position(|window| window == what);
    let mut rest = &reply.body[..];
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(delimiter.as_bytes()).expect("a delimiter");
        if rest == b"--\r\n" {
            return parts;
        }
        rest = rest.strip_prefix(b"\r\n").unwrap();
        let head_end = find(rest, b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&rest[..head_end]).unwrap();
        assert!(head.contains("Content-Type: application/octet-stream"), "{head}");
        let range = head.lines().find_map(|line| line.strip_prefix("Content-Range: ")).unwrap().to_owned();
        rest = &rest[head_end + 4..];
        let end = find(rest, format!("\r\n{delimiter}").as_bytes()).unwrap();
        parts.push((range, rest[..end].to_vec()));
        rest = &rest[end + 2..];
    }
}

#[tokio::test]
async fn several_ranges_are_parts_in_the_order_of_the_request() {
    let site = Site::new().await;
    let content = pattern(LARGE);
    site.put("cold", &content);
    let mut client = site.connect().await;
    let reply = client
        .request("GET", "/cold", "Range: bytes=900000-1200000, 0-99, -10, 5000-5999, 5900-6099\r\n")
        .await;
    assert_eq!((reply.status, reply.field("content-range")), (206, ""));
    let want = [(900_000, 1_200_001), (0, 100), (LARGE - 10, LARGE), (5000, 6100)];
    let got = parts(&reply);
    assert_eq!(got.len(), want.len());
    for ((start, end), (range, bytes)) in want.into_iter().zip(got) {
        assert_eq!(range, format!("bytes {start}-{}/{LARGE}", end - 1));
        assert!(bytes == content[start..end], "{range}");
    }
    // Its length was right: the connection is in step.
    assert_eq!(client.request("GET", "/cold", "Range: bytes=7-7\r\n").await.body, content[7..8]);
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let site = Site::new().await;
    site.put("hot", &pattern(LARGE));
    let mut client = site.connect().await;
    let get = client.request("GET", "/hot", "").await;
    let head = client.request("HEAD", "/hot", "").await;
    assert_eq!(head.status, 200);
    for field in ["content-length", "etag", "last-modified", "content-type", "accept-ranges", "cache-control"]
    {
        assert_eq!(head.field(field), get.field(field), "{field}");
    }
    // Ranges are defined for GET only.
    let head = client.request("HEAD", "/hot", "Range: bytes=0-9\r\n").await;
    assert_eq!((head.status, head.field("content-length")), (200, &*LARGE.to_string()));
    let head = client.request("HEAD", "/none", "").await;
    assert_eq!(head.status, 404);
    assert_eq!(client.request("GET", "/hot", "Range: bytes=0-9\r\n").await.body.len(), 10);
}

#[tokio::test]
async fn other_methods_are_refused() {
    let site = Site::new().await;
    site.put("hot", b"x");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        let reply = site.connect().await.request(method, "/hot", "Content-Length: 0\r\n").await;
        assert_eq!((reply.status, reply.field("allow")), (405, "GET, HEAD"), "{method}");
    }
    assert_eq!(fs::read(site.dir().join("hot")).unwrap(), b"x");
}

#[tokio::test]
async fn preconditions() {
    let site = Site::new().await;
    let content = pattern(1000);
    site.put("hot", &content);
    let first = site.get("/hot", "").await;
    let (etag, date) = (first.field("etag"), first.field("last-modified"));
    let old = "Thu, 01 Jan 2004 00:00:00 GMT";
    for (fields, status, len) in [
        (format!("If-None-Match: {etag}\r\n"), 304, 0),
        (format!("If-None-Match: \"x\", W/{etag}\r\n"), 304, 0),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200, 1000),
        (format!("If-Modified-Since: {date}\r\n"), 304, 0),
        (format!("If-Modified-Since: {old}\r\n"), 200, 1000),
        (format!("If-None-Match: {etag}\r\nRange: bytes=0-9\r\n"), 304, 0),
        (format!("If-Range: {etag}\r\nRange: bytes=0-9\r\n"), 206, 10),
        (format!("If-Range: {date}\r\nRange: bytes=0-9\r\n"), 206, 10),
        ("If-Range: \"x\"\r\nRange: bytes=0-9\r\n".to_owned(), 200, 1000),
        (format!("If-Range: W/{etag}\r\nRange: bytes=0-9\r\n"), 200, 1000),
        (format!("If-Range: {old}\r\nRange: bytes=0-9\r\n"), 200, 1000),
        ("If-Range: \"x\"\r\nRange: bytes=5000-\r\n".to_owned(), 200, 1000),
        (format!("If-Match: {etag}\r\nRange: bytes=0-9\r\n"), 206, 10),
    ] {
        let reply = site.get("/hot", &fields).await;
        assert_eq!((reply.status, reply.body.len()), (status, len), "{fields}");
        assert_eq!(reply.field("etag"), etag, "{fields}");
    }
    assert_eq!(site.get("/hot", "If-Match: \"x\"\r\n").await.status, 412);
    assert_eq!(site.get("/hot", &format!("If-Unmodified-Since: {old}\r\n")).await.status, 412);
}

#[tokio::test]
async fn a_changed_file_has_another_etag() {
    let site = Site::new().await;
    site.put("hot", &pattern(1000));
    let first = site.get("/hot", "").await;
    let mut changed = pattern(1000);
    changed[0] ^= 1;
    // Replaced by a rename, with the same size and date.
    let other = site.put("other", &changed);
    let modified = fs::metadata(site.dir().join("hot")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(other, site.dir().join("hot")).unwrap();
    let reply = site.get("/hot", &format!("If-None-Match: {}\r\n", first.field("etag"))).await;
    assert_eq!((reply.status, reply.body), (200, changed));
}

#[tokio::test]
async fn a_max_age_is_told_to_caches() {
    let site = Site::with(|config| config.max_age = std::time::Duration::from_secs(3600)).await;
    site.put("hot", b"x");
    let told = "public, max-age=3600, immutable, no-transform";
    assert_eq!(site.get("/hot", "").await.field("cache-control"), told);
    assert_eq!(site.get("/hot", "Range: bytes=9-\r\n").await.field("cache-control"), "no-cache");
    assert_eq!(site.get("/none", "").await.field("cache-control"), "no-cache");
}

#[tokio::test]
async fn nothing_outside_the_directory_is_read() {
    let site = Site::new().await;
    fs::write(site.outer().join("secret"), "SECRET").unwrap();
    site.put("git/hot", b"hot");
    let dir = site.dir();
    symlink("../secret", dir.join("link")).unwrap();
    symlink(site.outer().join("secret"), dir.join("absolute")).unwrap();
    symlink("..", dir.join("up")).unwrap();
    symlink("/proc/self/root", dir.join("magic")).unwrap();
    symlink("git/hot", dir.join("inside")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap();
    assert!(fifo.success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();

    let secret = site.outer().join("secret");
    let absolute = format!("/{}", secret.display());
    for path in [
        "/../secret",
        "/git/../../secret",
        "/%2e%2e/secret",
        "/%2E%2E/secret",
        "/.%2e/secret",
        "/..%2fsecret",
        "/git/..%2f..%2fsecret",
        "/%2e%2e%2fsecret",
        "/..%5csecret",
        "/%252e%252e/secret",
        "/..;/secret",
        "/git/%2e%2e/%2e%2e/secret",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/hot%00",
        "/git/hot%00.txt",
        "/git/hot/",
        "/git//hot",
        "/./git/hot",
        "/git/./hot",
        "/git/hot/x",
        "/link",
        "/absolute",
        "/up/secret",
        "/up",
        "/magic/etc/passwd",
        "/magic",
        "/fifo",
        "/socket",
        "/none",
        "/none/hot",
        "/inside/",
        &absolute,
        "http://localhost/../secret",
        "http://localhost/%2e%2e/secret",
    ] {
        let reply = site.get(path, "").await;
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
        assert!(!reply.body.windows(6).any(|six| six == b"SECRET"), "{path}");
    }
    let long = format!("/{}", "a".repeat(5000));
    assert_eq!(site.get(&long, "").await.status, 404);
    for path in ["/git/hot", "/inside", "/git/%68ot", "/git/hot?version=1", "http://localhost/git/hot"] {
        let reply = site.get(path, "").await;
        assert_eq!((reply.status, &reply.body[..]), (200, &b"hot"[..]), "{path}");
    }
}

#[tokio::test]
async fn directories_tell_of_images_only() {
    let site = Site::new().await;
    let empty = site.get("/", "").await;
    assert_eq!((empty.status, empty.field("content-type")), (200, "text/plain; charset=utf-8"));
    assert!(String::from_utf8(empty.body).unwrap().starts_with("no images here"));

    site.put("git/hot", b"x");
    site.put("tools/a b/hot", b"x");
    site.put("tools/deep/er/hot", b"x");
    site.put("plain/file", b"x");
    fs::create_dir_all(site.dir().join("odd/hot")).unwrap();
    let list = site.get("/", "").await;
    assert_eq!(String::from_utf8(list.body).unwrap(), "/git\n/tools/a%20b\n/tools/deep/er\n");
    for path in ["/git", "/git/"] {
        let reply = site.get(path, "").await;
        assert_eq!(reply.status, 200, "{path}");
        let text = String::from_utf8(reply.body).unwrap();
        assert_eq!(text, "a pagein image. To run it: pagein run http://localhost/git\n");
    }
    for path in ["/plain", "/plain/", "/tools", "/odd", "/odd/hot"] {
        assert_eq!(site.get(path, "").await.status, 404, "{path}");
    }
    site.put("hot", b"x");
    assert!(site.get("/", "").await.body.starts_with(b"/\n/git\n"));
}

#[tokio::test]
async fn names_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt as _;
    let site = Site::new().await;
    fs::write(site.dir().join(std::ffi::OsStr::from_bytes(b"\xff name")), "odd").unwrap();
    assert_eq!(site.get("/%ff%20name", "").await.body, b"odd");
}

#[tokio::test]
async fn http2_with_prior_knowledge() {
    let site = Site::new().await;
    let content = pattern(LARGE);
    site.put("cold", &content);
    let stream = within("connecting", TcpStream::connect(site.addr)).await.unwrap();
    let (client, connection) = within(
        "the handshake",
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let request = |method: &str, range: Option<String>| {
        let mut request = Request::builder().method(method).uri(format!("http://{}/cold", site.addr));
        if let Some(range) = range {
            request = request.header("range", range);
        }
        client.clone().send_request(request.body(Empty::<Bytes>::new()).unwrap())
    };
    // Many at once, one of them large, each with its own bytes.
    let whole = request("GET", None);
    let ranges = (0..40).map(|i| {
        let start = i * 32768;
        let reply = request("GET", Some(format!("bytes={start}-{}", start + 32767)));
        let content = &content;
        async move {
            let reply = reply.await.unwrap();
            assert_eq!((reply.status().as_u16(), reply.version()), (206, Version::HTTP_2));
            assert!(reply.into_body().collect().await.unwrap().to_bytes() == content[start..start + 32768]);
        }
    });
    let ranges: Vec<_> = ranges.collect();
    within("the ranges", async {
        for range in ranges {
            range.await;
        }
    })
    .await;
    let body = within("the whole", async { whole.await.unwrap().into_body().collect().await.unwrap() }).await;
    assert!(body.to_bytes() == content);

    let head = within("HEAD", request("HEAD", None)).await.unwrap();
    assert_eq!(head.headers()["content-length"], LARGE.to_string());
    let reply = within("416", request("GET", Some("bytes=99999999-".to_owned()))).await.unwrap();
    assert_eq!(
        (reply.status().as_u16(), reply.headers()["content-range"].to_str().unwrap()),
        (416, &*format!("bytes */{LARGE}"))
    );
    let reply = within("parts", request("GET", Some("bytes=0-0,-1".to_owned()))).await.unwrap();
    assert_eq!(reply.status().as_u16(), 206);
    let length: u64 = reply.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let body = within("parts", reply.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body.len() as u64, length);
    assert_eq!(within("POST", request("POST", None)).await.unwrap().status().as_u16(), 405);
}
