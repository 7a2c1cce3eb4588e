//! Notifications to the manager of services that started the process, such as systemd: `sd_notify(3)`.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::lifecycle::Lifecycle;

/// Variable with the socket: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Variables of the watchdog: microseconds between its signs of life at most, and the process that gives
/// them.
const WATCHDOG_US: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// Signs of life within the time of the watchdog.
const SIGNS: u32 = 3;
const SIGN_OF_LIFE: &str = "WATCHDOG=1\n";
/// How long a state waits for space in the socket of a busy manager.
const STATE_WITHIN: Duration = Duration::from_secs(60);

/// The manager of services; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager {
    socket: Option<OsString>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names, if any.
    pub fn of_environment() -> Self {
        let text = |name| std::env::var(name).ok();
        Self {
            socket: std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()),
            watchdog: watchdog(text(WATCHDOG_US), text(WATCHDOG_PROCESS), std::process::id()),
        }
    }

    /// Whether there is a manager that gets notifications.
    pub fn is_present(&self) -> bool {
        self.socket.is_some()
    }

    /// The node serves requests.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=serving\n");
    }

    /// The node stops.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping\n");
    }

    /// The node reads its configuration again; [`Self::ready`] ends that.
    pub fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", monotonic_us()));
    }

    /// The node starts, and waits for this.
    pub fn starting(&self, what: &str) {
        self.send(&format!("STATUS={what}\n"));
    }

    /// Gives signs of life until the node has stopped. They come from a task of the runtime: if its
    /// threads are blocked, there are none.
    pub fn watch(&self, lifecycle: &Lifecycle) {
        let (Some(within), true) = (self.watchdog, self.socket.is_some()) else { return };
        let (manager, stop) = (self.clone(), lifecycle.token());
        lifecycle.spawn(async move {
            let mut ticks = interval(within / SIGNS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                // Another task must get its turn as well.
                if tokio::spawn(async {}).await.is_ok() {
                    manager.send(SIGN_OF_LIFE);
                }
            }
        });
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        // A full socket must not block a thread of the runtime.
        match send_once(socket, message, None) {
            Ok(()) => {}
            // The next sign of life comes by itself. A state is sent once, and the manager waits for it.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && message != SIGN_OF_LIFE => {
                let (socket, message) = (socket.clone(), message.to_owned());
                std::thread::spawn(move || {
                    send_once(&socket, &message, Some(STATE_WITHIN)).unwrap_or_else(|e| failed(&e));
                });
            }
            Err(e) => failed(&e),
        }
    }
}

fn failed(e: &io::Error) {
    tracing::debug!(error = %e, "the manager of services was not notified");
}

/// Sends a message. If the socket is full, waits for so long, or fails at once.
fn send_once(socket: &OsStr, message: &str, within: Option<Duration>) -> io::Result<()> {
    let from = UnixDatagram::unbound()?;
    match within {
        Some(within) => from.set_write_timeout(Some(within))?,
        None => from.set_nonblocking(true)?,
    }
    from.send_to_addr(message.as_bytes(), &address(socket.as_bytes())?).map(drop)
}

/// The address that the variable names.
fn address(socket: &[u8]) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::from_bytes(socket))
}

/// The time of the watchdog, if it watches this process.
fn watchdog(us: Option<String>, process: Option<String>, me: u32) -> Option<Duration> {
    let is_me = process.is_none_or(|process| process == me.to_string());
    let us = us?.parse().ok().filter(|us| *us > 0 && is_me)?;
    Some(Duration::from_micros(us))
}

/// Microseconds of the monotonic clock.
#[allow(unsafe_code)]
fn monotonic_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the function writes a `timespec` to a valid place.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A manager with its socket, and the messages that it got.
    fn manager(watchdog: Option<Duration>) -> (tempfile::TempDir, UnixDatagram, ServiceManager) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (dir, socket, ServiceManager { socket: Some(path.into()), watchdog })
    }

    fn next(socket: &UnixDatagram) -> String {
        let mut message = [0; 200];
        let len = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    }

    #[test]
    fn each_state_of_the_node_is_one_datagram() {
        let (_dir, socket, manager) = manager(None);
        manager.ready();
        assert!(next(&socket).starts_with("READY=1\n"));
        manager.reloading();
        assert!(next(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        manager.stopping();
        assert!(next(&socket).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn a_state_waits_for_a_manager_that_is_busy() {
        let (_dir, socket, manager) = manager(None);
        let to = manager.socket.clone().unwrap();
        let mut signs = 0;
        while send_once(&to, SIGN_OF_LIFE, None).is_ok() {
            signs += 1;
        }
        manager.ready();
        (0..signs).for_each(|_| assert_eq!(next(&socket), SIGN_OF_LIFE));
        assert!(next(&socket).starts_with("READY=1\n"));
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        ServiceManager::default().ready();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_name_is_reached() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("forebay-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let manager = ServiceManager { socket: Some(format!("@{name}").into()), watchdog: None };
        manager.ready();
        assert!(next(&socket).starts_with("READY=1\n"));
    }

    #[test]
    fn signs_of_life_come_while_the_runtime_works_and_stop_while_it_is_blocked() {
        let (_dir, socket, manager) = manager(Some(Duration::from_millis(60)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lifecycle = Lifecycle::new();
        runtime.block_on(async {
            manager.watch(&lifecycle);
            let of_task = socket.try_clone().unwrap();
            let seen = tokio::task::spawn_blocking(move || [next(&of_task), next(&of_task)]).await;
            assert_eq!(seen.unwrap(), ["WATCHDOG=1\n", "WATCHDOG=1\n"]);
        });
        // Nobody runs the runtime now.
        socket.set_nonblocking(true).unwrap();
        while socket.recv(&mut [0; 200]).is_ok() {}
        std::thread::sleep(Duration::from_millis(200));
        assert!(socket.recv(&mut [0; 200]).is_err());
    }

    #[test]
    fn a_watchdog_of_another_process_is_none_of_ours() {
        let watchdog = |us: &str, process: Option<&str>| {
            watchdog(Some(us.to_owned()), process.map(str::to_owned), 7)
        };
        assert_eq!(watchdog("2000000", None), Some(Duration::from_secs(2)));
        assert_eq!(watchdog("2000000", Some("7")), Some(Duration::from_secs(2)));
        assert_eq!(watchdog("2000000", Some("8")), None);
        assert_eq!(watchdog("0", None), None);
        assert_eq!(watchdog("soon", None), None);
    }
}
