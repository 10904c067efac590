//! Network namespaces without a name: they live as long as a process or a descriptor holds them, and take their devices,
//! addresses and rules with them when they go. Nothing has to be cleaned up.

use std::{
    fs::{self, File},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    unistd::{getegid, geteuid},
};

use super::NetError;

/// A network namespace, held open.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// A new, empty one.
    pub(super) fn new() -> Result<Self, NetError> {
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(denied("network"))?;
            Self::current()
        })
    }

    /// The one that the calling thread is in.
    pub(super) fn current() -> Result<Self, NetError> {
        File::open("/proc/thread-self/ns/net")
            .map(Self)
            .map_err(NetError::at("open /proc/thread-self/ns/net"))
    }

    /// Another descriptor of the same namespace.
    pub(super) fn try_clone(&self) -> std::io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Moves the calling thread here, for good.
    pub(super) fn enter(&self) -> Result<(), NetError> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).map_err(|cause| NetError::Setup {
            step: "enter a network namespace".into(),
            cause: cause.into(),
        })
    }

    /// Runs `work` on a thread of its own in here; sockets and devices that it makes stay here.
    pub(super) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, NetError> + Send,
    ) -> Result<T, NetError> {
        in_thread(|| {
            self.enter()?;
            work()
        })
    }
}

/// Runs `work` on a thread that ends with it, so that the namespaces it enters leave no mark on the caller.
pub(super) fn in_thread<T: Send>(work: impl FnOnce() -> Result<T, NetError> + Send) -> Result<T, NetError> {
    thread::scope(|scope| scope.spawn(work).join_or_resume())
}

/// Passes a panic of the thread on.
trait JoinOrResume<T> {
    fn join_or_resume(self) -> T;
}

impl<T> JoinOrResume<T> for ScopedJoinHandle<'_, T> {
    fn join_or_resume(self) -> T {
        self.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The kernel's refusal to make a namespace.
pub(super) fn denied(kind: &'static str) -> impl FnOnce(nix::Error) -> NetError {
    move |cause| NetError::Namespace { kind, cause: cause.into() }
}

/// Makes sure that this process may make network namespaces: it may already, or it becomes its own user namespace, in which
/// its user keeps the same number.
///
/// A user namespace is entered by the whole process, and only while it has a single thread.
pub(super) fn gain_rights() -> Result<(), NetError> {
    match Namespace::new() {
        Ok(_) => return Ok(()),
        Err(NetError::Namespace { cause, .. }) if cause.raw_os_error() == Some(nix::Error::EPERM as i32) => {}
        Err(error) => return Err(error),
    }
    wait_to_be_alone()?;
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(denied("user"))?;
    let write =
        |file: &str, text: String| fs::write(file, text).map_err(NetError::at(format!("write {file}")));
    // An ordinary user may map its group only after giving up setgroups (user_namespaces(7)).
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Waits until no thread but the calling one is left. One that was joined just now may still be on its way out of the kernel.
fn wait_to_be_alone() -> Result<(), NetError> {
    let deadline = Instant::now() + Duration::from_millis(200);
    loop {
        let threads = fs::read_dir("/proc/self/task").map_err(NetError::at("read /proc/self/task"))?.count();
        if threads == 1 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(NetError::Threads(threads));
        }
        thread::sleep(Duration::from_millis(1));
    }
}
