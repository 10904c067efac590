//! A thread for what can wait: unpacking what nobody has asked for yet, and putting the complete file together.

use tokio::sync::oneshot;

/// Nice value of the thread that unpacks (`setpriority(2)`): the program comes first, but whoever waits for the fill gets it.
const NICE: i32 = 10;

/// A thread for work that is not urgent. It has no part in the runtime, whose own threads must be free for what is.
pub(crate) struct Worker(std::sync::mpsc::Sender<Box<dyn FnOnce() + Send>>);

impl Worker {
    /// Starts it.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (sender, work) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
        std::thread::Builder::new().name("pagein-fill".into()).spawn(move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            for job in work {
                job();
            }
        })?;
        Ok(Self(sender))
    }

    /// Does `job` there, behind what was given before; what comes of it can be had from the result. If the thread has gone, so has the
    /// process.
    pub(crate) fn give<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        let _ = self.0.send(Box::new(move || drop(tell.send(job()))));
        told
    }
}
