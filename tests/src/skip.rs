//! Skipped tests: a test that cannot run on this machine says so, and is counted at the end of
//! `make test-rust`. Included by `crates/store` and `crates/clouds`, too, whose unit tests need the same
//! servers and rights.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::thread;

/// Variable that names the file which gets a line for each skipped test.
const FILE: &str = "FOREBAY_SKIPPED";

/// Reports that the test that runs in this thread is skipped, and why. The test returns next.
pub fn skipped(why: &str) {
    let line = format!("skipped: {}: {why}\n", test_name());
    // Not `eprintln!`: the output of a test that passes is captured from macros, and lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let Some(file) = std::env::var_os(FILE).filter(|file| !file.is_empty()) else { return };
    let file = OpenOptions::new().create(true).append(true).open(file);
    // One write, because other tests append at the same time.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|e| panic!("{FILE}: {e}"));
}

/// As [`skipped`]; fails the test instead if the environment variable `required` is set.
pub fn skipped_unless(required: &str, why: &str) {
    let is_required = std::env::var_os(required).is_some_and(|value| !value.is_empty());
    assert!(!is_required, "{why}, and {required} is set");
    skipped(why);
}

/// The name of the test: that of its thread, unless tests run one after the other in the main thread.
fn test_name() -> String {
    let thread = thread::current();
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => {
            let program = std::env::args().next().unwrap_or_default();
            let program = Path::new(&program).file_stem().unwrap_or_default().to_string_lossy();
            format!("a test of {}", program.split('-').next().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    /// Runs the test of this name again, in a process of its own and as libtest runs it, with these
    /// variables.
    fn run_again(test: &str, variables: &[(&str, &str)]) -> Output {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["--exact", test, "--test-threads", "2"]).envs(variables.iter().copied());
        command.env_remove("RUST_TEST_NOCAPTURE").output().expect("this program starts")
    }

    #[test]
    fn a_skipped_test_is_named_outside_of_the_capture_and_in_the_file() {
        const AGAIN: &str = "FOREBAY_SKIP_HERE";
        if std::env::var_os(AGAIN).is_some() {
            println!("captured");
            return skipped_unless("FOREBAY_REQUIRE_NOTHING", "it is only a test");
        }
        let module = module_path!().split_once("::").expect("a module in a crate").1;
        let test =
            format!("{module}::a_skipped_test_is_named_outside_of_the_capture_and_in_the_file");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("skipped");
        let name = file.to_str().expect("a path of text");
        let expected = format!("skipped: {test}: it is only a test\n");

        let set = [(AGAIN, "1"), (FILE, name), ("FOREBAY_REQUIRE_NOTHING", "")];
        let output = run_again(&test, &set);
        assert!(output.status.success(), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("captured"), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        assert_eq!(std::fs::read_to_string(&file).expect("the file is there"), expected);

        let set = [(AGAIN, "1"), (FILE, name), ("FOREBAY_REQUIRE_NOTHING", "1")];
        let output = run_again(&test, &set);
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("the file is there"), expected);
    }
}
