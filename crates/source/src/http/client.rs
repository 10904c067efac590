//! The HTTP clients: one without TLS, one with it, each built when it is first needed.
//!
//! A client is built on the critical path of a program's start. With reqwest's own TLS set-up that reads the
//! system's certificate store, 4 to 30 ms; with an empty store it takes 0.1 ms. So `http://` gets a client
//! that trusts nobody and never needs to, and `https://` one whose verifier reads the store while the
//! connection is being made (see `roots.rs`).
//!
//! The TLS provider is ring: it needs a C compiler and nothing else to build.

use std::sync::{Arc, OnceLock};

use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};

use super::connect::TimeConnects;
use super::roots::LazyRoots;
use crate::{Meter, Options};

pub(super) struct Clients {
    options: Options,
    meter: Arc<Meter>,
    plain: OnceLock<Client>,
    tls: OnceLock<Client>,
}

impl Clients {
    pub(super) fn new(options: Options, meter: Arc<Meter>) -> Self {
        Self { options, meter, plain: OnceLock::new(), tls: OnceLock::new() }
    }

    /// Others with the same options, which share no connection with these.
    pub(super) fn beside(&self) -> Self {
        Self::new(self.options.clone(), Arc::clone(&self.meter))
    }

    /// The client for this URL's scheme.
    pub(super) fn for_url(&self, url: &Url) -> Result<&Client, reqwest::Error> {
        let tls = url.scheme() == "https" || (self.options.proxy && proxy_has_tls());
        let cell = if tls { &self.tls } else { &self.plain };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = build(&self.options, &self.meter, tls)?;
        Ok(cell.get_or_init(|| client))
    }
}

/// Whether plain requests may go through a proxy that is itself reached by TLS.
fn proxy_has_tls() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| value.to_ascii_lowercase().starts_with("https:")))
}

fn build(options: &Options, meter: &Arc<Meter>, tls: bool) -> Result<Client, reqwest::Error> {
    let mut builder = Client::builder()
        .user_agent(concat!("pagein/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect.min(options.stall))
        .tcp_nodelay(true)
        .connector_layer(TimeConnects(Arc::clone(meter)))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .tls_backend_preconfigured(tls_config(tls));
    if !options.proxy {
        builder = builder.no_proxy();
    }
    builder.build()
}

fn tls_config(trusting: bool) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions");
    let mut config = if trusting {
        // Not less strict than the default: the same verifier, only built later.
        builder.dangerous().with_custom_certificate_verifier(LazyRoots::start(provider)).with_no_client_auth()
    } else {
        builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Prints the figures with `--nocapture`; the bound is far above the 0.1 ms it takes, far below what
    /// reading certificates would.
    #[test]
    fn clients_cost_next_to_nothing_to_build() {
        for scheme in ["http", "https"] {
            let url = Url::parse(&format!("{scheme}://127.0.0.1/")).unwrap();
            let times: Vec<Duration> = (0..20)
                .map(|_| {
                    let start = Instant::now();
                    let clients = Clients::new(Options::default(), Arc::default());
                    clients.for_url(&url).unwrap();
                    start.elapsed()
                })
                .collect();
            println!("{scheme} client: first {:?}, best {:?}", times[0], times.iter().min().unwrap());
            assert!(times.iter().min().unwrap() < &Duration::from_millis(1), "{scheme}: {times:?}");
        }
    }
}
