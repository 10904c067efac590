//! The certificate authorities, read while the connection is being made.
//!
//! Reading the system's store takes milliseconds, and the server's certificate comes two round trips after
//! the connection is begun. So a thread reads it meanwhile, and the verifier waits for that thread if it
//! must.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// rustls' own verifier, built from the system's certificate store on another thread.
#[derive(Debug)]
pub(super) struct LazyRoots {
    provider: Arc<CryptoProvider>,
    verifier: OnceLock<Result<Arc<WebPkiServerVerifier>, Error>>,
}

impl LazyRoots {
    /// Begins to read the store.
    pub(super) fn start(provider: Arc<CryptoProvider>) -> Arc<Self> {
        let roots = Arc::new(Self { provider, verifier: OnceLock::new() });
        let reader = roots.clone();
        // Should there be no thread to be had, the first verification reads the store itself.
        let _ = std::thread::Builder::new().name("pagein-roots".into()).spawn(move || reader.wait().is_ok());
        roots
    }

    fn wait(&self) -> Result<&WebPkiServerVerifier, Error> {
        let built = self.verifier.get_or_init(|| {
            WebPkiServerVerifier::builder_with_provider(Arc::new(read_store()), self.provider.clone())
                .build()
                .map_err(|error| Error::General(error.to_string()))
        });
        built.as_deref().map_err(Clone::clone)
    }
}

/// The system's authorities (`SSL_CERT_FILE`, `SSL_CERT_DIR` or the distribution's store); in a container
/// that has none, Mozilla's as of this build.
fn read_store() -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    store
}

impl ServerCertVerifier for LazyRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.wait()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.wait()?.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.wait()?.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
