//! Times how long connections take to be made. For TCP alone that is one round trip, the only one that nothing else is part of.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tower_layer::Layer;
use tower_service::Service;

use crate::Meter;

/// Puts a clock around a client's connector.
#[derive(Clone)]
pub(super) struct TimeConnects(pub(super) Arc<Meter>);

/// The connector with the clock.
#[derive(Clone)]
pub(super) struct Timed<S> {
    inner: S,
    meter: Arc<Meter>,
}

impl<S> Layer<S> for TimeConnects {
    type Service = Timed<S>;

    fn layer(&self, inner: S) -> Timed<S> {
        Timed { inner, meter: Arc::clone(&self.0) }
    }
}

type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl<S, R> Service<R> for Timed<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pending<S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (start, meter) = (Instant::now(), Arc::clone(&self.meter));
        let connecting = self.inner.call(request);
        Box::pin(async move {
            let connected = connecting.await?;
            meter.connected_after(start.elapsed());
            Ok(connected)
        })
    }
}
