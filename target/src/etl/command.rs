//! Transforms by a command of the node's configuration: it reads the object on standard input,
//! writes the transformed object to standard output, and messages to standard error.

use std::io::ErrorKind;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::config::EtlCommand;
use forebay_core::locks::MutexExt;
use forebay_core::{Bucket, Error, ErrorCode, Result};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio_util::io::ReaderStream;

use super::notes::Note;
use super::piece::Transformed;

/// Bytes of the output that are read at once.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// Bytes of a failed command's messages that are passed on.
const WORDS: usize = 2 << 10;
/// Folders of programs if the node has no `PATH`.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Wait for the last messages of a command that has ended: a child of it may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The environment variables of a command. None of the node's own are passed.
pub(super) struct CommandInput<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) object: &'a str,
    pub(super) args: &'a str,
}

/// Starts the command on `input`. Dropping the result ends it.
pub(super) fn run(
    command: &EtlCommand,
    command_input: &CommandInput<'_>,
    input: Transformed,
    note: Arc<Note>,
) -> Result<Transformed> {
    let (program, args) = command
        .argv
        .split_first()
        .ok_or_else(|| Error::internal(format!("etl command {} has no program", command.name)))?;
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let spawned = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", path)
        .env("LANG", "C.UTF-8")
        .env("ETL_BUCKET", command_input.bucket.to_string())
        .env("ETL_OBJECT", command_input.object)
        .env("ETL_ARGS", command_input.args)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let cannot = |e: std::io::Error| match e.kind() {
        // A NUL among the arguments, or too many of them.
        ErrorKind::InvalidInput | ErrorKind::ArgumentListTooLong => {
            Error::invalid(format!("etl_args cannot be given to a command: {e}"))
        }
        _ => Error::unavailable(format!("cannot start etl command {}: {e}", command.name)),
    };
    let mut child = spawned.map_err(cannot)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Error::internal("a command without its pipes"));
    };
    let broken = Arc::new(Mutex::new(None));
    let running = Running {
        child,
        name: command.name.clone(),
        output: ReaderStream::with_capacity(stdout, READ_CHUNK_BYTES),
        feeding: tokio::spawn(feed(stdin, input.body, broken.clone())),
        words: tokio::spawn(listen(stderr, note)),
        broken,
    };
    let body = futures::stream::try_unfold(running, |mut running| async move {
        let chunk = running.next().await?;
        Ok(chunk.map(|chunk| (chunk, running)))
    });
    Ok(Transformed { len: None, content_type: None, body: body.boxed() })
}

struct Running {
    child: Child,
    name: String,
    output: ReaderStream<ChildStdout>,
    feeding: JoinHandle<()>,
    words: JoinHandle<String>,
    /// Why the input ended early.
    broken: Arc<Mutex<Option<Error>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.feeding.abort();
        self.words.abort();
    }
}

impl Running {
    /// The next part of the output. Its end is valid only if the command exits successfully.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let lost = |e: std::io::Error| Error::internal(format!("pipe of a command: {e}"));
        if let Some(chunk) = self.output.try_next().await.map_err(lost)? {
            return Ok(Some(chunk));
        }
        let status = self.child.wait().await.map_err(lost)?;
        let broken = self.broken.locked().take();
        if let Some(e) = broken {
            return Err(e);
        }
        if status.success() {
            return Ok(None);
        }
        let words = tokio::time::timeout(LAST_WORDS, &mut self.words).await;
        let words = words.ok().and_then(Result::ok).unwrap_or_default();
        let colon = if words.is_empty() { "" } else { ": " };
        Err(Error::new(
            ErrorCode::Unprocessable,
            format!("ETL error: command {} ended with {status}{colon}{}", self.name, words.trim()),
        ))
    }
}

/// Writes the object to the command. A command that does not read all of it is no failure.
async fn feed(
    mut stdin: ChildStdin,
    mut body: BoxStream<'static, Result<Bytes>>,
    broken: Arc<Mutex<Option<Error>>>,
) {
    loop {
        match body.try_next().await {
            Ok(Some(chunk)) => {
                if stdin.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(e) => {
                // Before the pipe closes, so that its end is not taken for the object's end.
                *broken.locked() = Some(e);
                return;
            }
        }
    }
}

/// Logs the messages of the command. Returns the last of them.
async fn listen(mut stderr: ChildStderr, note: Arc<Note>) -> String {
    let (mut last, mut buffer) = (Vec::new(), vec![0; 4 << 10]);
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        note.log(&String::from_utf8_lossy(&buffer[..read]));
        last.extend_from_slice(&buffer[..read]);
        let least = last.len().saturating_sub(WORDS);
        last.drain(..least);
    }
    String::from_utf8_lossy(&last).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::Provider;

    fn shell(line: &str) -> EtlCommand {
        let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
        EtlCommand { name: "test".into(), argv }
    }

    fn piece(chunks: Vec<Result<Bytes>>) -> Transformed {
        let body = futures::stream::iter(chunks).boxed();
        Transformed { len: None, content_type: None, body }
    }

    async fn ran(line: &str, input: Vec<Result<Bytes>>) -> Result<String> {
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let command_input = CommandInput { bucket: &bucket, object: "d/x", args: "some args" };
        let out = run(&shell(line), &command_input, piece(input), Arc::default())?;
        let all: Vec<Bytes> = out.body.try_collect().await?;
        Ok(String::from_utf8(all.concat()).unwrap())
    }

    fn ok(text: &'static str) -> Result<Bytes> {
        Ok(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn what_goes_in_comes_out_changed() {
        assert_eq!(ran("tr a-z A-Z", vec![ok("ab"), ok("c")]).await.unwrap(), "ABC");
        assert_eq!(ran("tr a-z A-Z", vec![]).await.unwrap(), "");
        let command_input =
            ran("printf '%s|%s|%s' \"$ETL_BUCKET\" \"$ETL_OBJECT\" \"$ETL_ARGS\"", vec![ok("x")]);
        assert_eq!(command_input.await.unwrap(), "ais://b|d/x|some args");
    }

    #[tokio::test]
    async fn the_environment_of_the_node_is_not_passed_to_commands() {
        let names = ran("env | cut -d= -f1 | sort | tr '\\n' ' '", vec![]).await.unwrap();
        for name in names.split_whitespace() {
            let known = [
                "ETL_ARGS",
                "ETL_BUCKET",
                "ETL_OBJECT",
                "LANG",
                "PATH",
                "PWD",
                "OLDPWD",
                "SHLVL",
                "_",
            ];
            assert!(known.contains(&name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_fails_the_object_with_its_last_words() {
        let e = ran("cat; echo cannot read this >&2; exit 3", vec![ok("x")]).await.unwrap_err();
        assert_eq!(e.code, ErrorCode::Unprocessable);
        assert!(
            e.message.contains("exit status: 3") && e.message.contains("cannot read this"),
            "{e}"
        );
        let nowhere = EtlCommand { name: "test".into(), argv: vec!["/no/such/program".into()] };
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let command_input = CommandInput { bucket: &bucket, object: "x", args: "" };
        let e = run(&nowhere, &command_input, piece(vec![]), Arc::default()).err().unwrap();
        assert!(e.message.contains("cannot start etl command test"), "{e}");
    }

    #[tokio::test]
    async fn a_command_may_read_as_little_as_it_likes() {
        let much = vec![Ok(Bytes::from(vec![b'x'; 1 << 20])); 8];
        assert_eq!(ran("head -c 3", much).await.unwrap(), "xxx");
    }

    #[tokio::test]
    async fn an_object_that_breaks_off_is_never_taken_for_whole() {
        let gone = Error::unavailable("the backend went away");
        let e = ran("cat", vec![ok("half"), Err(gone.clone())]).await.unwrap_err();
        assert_eq!(e, gone);
    }
}
