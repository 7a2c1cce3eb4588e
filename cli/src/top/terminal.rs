//! The terminal of the full-screen view: keys, and a look at the cluster every interval.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc as blocking;
use std::time::Duration;

use console::{Key, Term};
use forebay_client::Client;
use forebay_core::overview::Overview;
use tokio::sync::mpsc;

use super::app::App;
use super::canvas::{ENTER, LEAVE, frame};
use super::screen::draw;
use crate::failure::Failure;
use crate::session::Session;

/// Timeout of a look; the next one tries another gateway.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The whole terminal, until this is dropped.
struct Screen {
    terminal: Term,
    /// The settings of before, as `stty` prints them.
    settings: Option<String>,
}

impl Screen {
    fn enter() -> Self {
        let screen = Self { terminal: Term::stdout(), settings: stty("-g") };
        show(ENTER);
        screen
    }

    fn draw(&self, app: &App) {
        let (height, width) = self.terminal.size();
        show(&frame(&draw(app, usize::from(height)), usize::from(width)));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        show(LEAVE);
        // The thread that waits for a key has changed them.
        if let Some(settings) = &self.settings {
            stty(settings);
        }
    }
}

/// Writes to the terminal. If that fails, the terminal is gone, which reading keys finds, too.
fn show(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Runs `stty`, which reads or changes the terminal of standard input.
fn stty(argument: &str) -> Option<String> {
    let mut stty = Command::new("stty");
    let done = stty.arg(argument).stdin(Stdio::inherit()).stderr(Stdio::null()).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// A thread that reads one key after the other, each when it is asked for.
struct Keys {
    keys: mpsc::Receiver<Key>,
    asks: blocking::Sender<()>,
}

impl Keys {
    fn read() -> Self {
        let (sender, keys) = mpsc::channel(1);
        let (asks, asked) = blocking::channel();
        std::thread::spawn(move || {
            let terminal = Term::stdout();
            while asked.recv().is_ok() {
                let Ok(key) = terminal.read_key_raw() else { return };
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        });
        Self { keys, asks }
    }

    /// Lets the thread read the next key.
    fn ask(&self) {
        // An error means that the thread has ended, which the next key shows.
        let _ = self.asks.send(());
    }
}

/// A task that looks at the cluster every interval, until this is dropped.
struct Looks {
    results: mpsc::Receiver<Result<Overview, String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Looks {
    fn begin(client: Client, interval: Duration) -> Self {
        let (sender, results) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let result = match tokio::time::timeout(LOOK_TIMEOUT, client.overview()).await {
                    Ok(result) => result.map_err(|e| e.message()),
                    Err(_) => Err("no gateway replied in time".to_owned()),
                };
                if sender.send(result).await.is_err() {
                    return;
                }
            }
        });
        Self { results, task }
    }
}

/// Shows the cluster until the user quits.
pub(crate) async fn run(session: &Session, interval: Duration) -> Result<(), Failure> {
    // The first look reports errors such as a missing right as every command does.
    let first = session.client.overview().await?;
    let mut app = App::new();
    app.look(Ok(first));
    let screen = Screen::enter();
    let mut keys = Keys::read();
    let mut looks = Looks::begin(session.client.clone(), interval);
    keys.ask();
    while !app.has_ended {
        screen.draw(&app);
        tokio::select! {
            key = keys.keys.recv() => match key {
                Some(key) => {
                    app.press(&key);
                    if !app.has_ended {
                        keys.ask();
                    }
                }
                // The terminal is gone.
                None => break,
            },
            Some(result) = looks.results.recv() => app.look(result),
        }
    }
    Ok(())
}
