//! `pagein serve`.

use std::process::ExitCode;

use pagein_loader::Failure;
use pagein_server::{Config, Server};
use tokio::signal::unix::{SignalKind, signal};

use super::{failed, print, runtime};
use crate::args;

pub(crate) fn serve(args: args::Serve) -> Result<ExitCode, Failure> {
    runtime()?.block_on(async {
        let config = Config { log: args.log, ..Config::new(&args.dir, args.listen) };
        let server = Server::bind(config).await.map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        // On stdout, so that scripts can wait for it and read the port.
        print(&format!("serving {} at http://{}/", args.dir.display(), server.local_addr()))?;
        let shutdown = async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        };
        server.run(shutdown).await.map_err(failed)
    })?;
    Ok(ExitCode::SUCCESS)
}
