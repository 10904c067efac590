//! HTTPS: the store is read meanwhile and honoured, HTTP/2 is agreed on, a certificate from elsewhere is
//! refused.
//!
//! Trust comes from `SSL_CERT_FILE`, and the environment cannot be changed safely in a process with threads:
//! so the tests that need it run again as a process of their own.

use std::convert::Infallible;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pagein_source::{Location, Options, Retry, SourceError, fetch, open};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

struct Server {
    port: u16,
    /// The protocol of each request.
    versions: Arc<Mutex<Vec<Version>>>,
}

/// Where the outer test put the certificate and the key.
fn identity() -> (Vec<u8>, Vec<u8>) {
    let dir = std::env::var("PAGEIN_TEST_IDENTITY").expect("set by the outer test");
    let read = |name: &str| std::fs::read(format!("{dir}/{name}")).unwrap();
    (read("cert.der"), read("key.der"))
}

/// Answers every request with `hello`, and `/moved/...` with a redirect to plain HTTP.
async fn server(protocols: &[&str]) -> Server {
    let (cert, key) = identity();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.into()], PrivateKeyDer::Pkcs8(key.into()))
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server { port: listener.local_addr().unwrap().port(), versions: Arc::default() };
    let versions = server.versions.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, versions) = (acceptor.clone(), versions.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    versions.lock().unwrap().push(request.version());
                    let moved = request.uri().path().starts_with("/moved");
                    async move { Ok::<_, Infallible>(answer(moved)) }
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    server
}

fn answer(moved: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
    if moved {
        *response.status_mut() = hyper::StatusCode::FOUND;
        let target = hyper::header::HeaderValue::from_static("http://127.0.0.1:1/hot");
        response.headers_mut().insert(hyper::header::LOCATION, target);
    }
    response
}

async fn get(server: &Server, host: &str, image: &str) -> Result<Vec<u8>, SourceError> {
    let url = format!("https://{host}:{}/{image}", server.port);
    let options = Options { proxy: false, ..Options::default() };
    let source = open(&Location::parse(&url).unwrap(), &options).unwrap();
    fetch(&*source, "hot", None, 5, &Retry::never()).await
}

#[tokio::test]
#[ignore = "run by the outer tests, with a certificate store of its own"]
async fn trusted() {
    for (protocols, version) in
        [(["h2", "http/1.1"].as_slice(), Version::HTTP_2), (&["http/1.1"], Version::HTTP_11)]
    {
        let server = server(protocols).await;
        assert_eq!(get(&server, "127.0.0.1", "x").await.unwrap(), b"hello");
        assert_eq!(*server.versions.lock().unwrap(), [version]);
    }
    let server = server(&["h2"]).await;
    // The certificate is for 127.0.0.1 only.
    let error = get(&server, "localhost", "x").await.unwrap_err();
    assert!(matches!(error, SourceError::Certificate { .. }), "{error:?}");
    let error = get(&server, "127.0.0.1", "moved").await.unwrap_err();
    assert!(error.to_string().contains("from https to http"), "{error}");
}

#[tokio::test]
#[ignore = "run by the outer tests, with a certificate store of its own"]
async fn untrusted() {
    let server = server(&["h2", "http/1.1"]).await;
    let error = get(&server, "127.0.0.1", "x").await.unwrap_err();
    assert!(matches!(error, SourceError::Certificate { .. }), "{error:?}");
    assert!(!error.is_transient());
    assert!(server.versions.lock().unwrap().is_empty(), "asked before it trusted");
}

/// Runs one of the tests above with the server's certificate, or another one, as the whole store.
fn again(test: &str, trusts_the_server: bool) {
    let dir = tempfile::tempdir().unwrap();
    let new = || rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (server, other) = (new(), new());
    let store = if trusts_the_server { &server } else { &other };
    std::fs::write(dir.path().join("cert.der"), server.cert.der()).unwrap();
    std::fs::write(dir.path().join("key.der"), server.signing_key.serialize_der()).unwrap();
    std::fs::write(dir.path().join("store.pem"), store.cert.pem()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("PAGEIN_TEST_IDENTITY", dir.path())
        .env("SSL_CERT_FILE", dir.path().join("store.pem"))
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn the_store_is_honoured_and_http2_is_agreed_on() {
    again("trusted", true);
}

#[test]
fn a_certificate_from_elsewhere_is_refused() {
    again("untrusted", false);
}

#[tokio::test]
async fn what_is_not_tls_at_all_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/x", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"SSH-2.0-OpenSSH\r\n").await;
        }
    });
    let options = Options { proxy: false, stall: Duration::from_secs(5), ..Options::default() };
    let source = open(&Location::parse(&url).unwrap(), &options).unwrap();
    let error = fetch(&*source, "hot", None, 5, &Retry::never()).await.unwrap_err();
    assert!(matches!(error, SourceError::Connect { .. }), "{error:?}");
}
