//! Processes whose clock is wrong: a small library, built by the test and loaded before the C library, shifts
//! the wall clock. The monotonic clock stays as it is, as on a machine whose clock was set wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds by which the wall clock is shifted.
const SHIFT: &str = "CLOCK_SHIFT_S";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *text = getenv("CLOCK_SHIFT_S");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int rc = (int)syscall(SYS_clock_gettime, clock, out);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += shift();
    return rc;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
"#;

/// A library that shifts the wall clock of processes.
#[derive(Clone, Debug)]
pub struct ClockShift {
    library: PathBuf,
}

impl ClockShift {
    /// Builds the library in a folder with the C compiler, which Rust needs for linking anyway.
    pub fn build_in(dir: &Path) -> Self {
        let (source, library) = (dir.join("clock.c"), dir.join("libclock.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut cc = Command::new(compiler);
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let status = cc.status().unwrap();
        assert!(status.success(), "{cc:?}: {status}");
        Self { library }
    }

    /// Environment of a process whose clock is this many seconds ahead.
    pub fn env(&self, seconds: i64) -> [(String, String); 2] {
        let library = self.library.display().to_string();
        [("LD_PRELOAD".into(), library), (SHIFT.into(), seconds.to_string())]
    }

    /// Prefix of a command line that runs the command with such a clock.
    pub fn words(&self, seconds: i64) -> String {
        let [preload, shift] = self.env(seconds).map(|(name, value)| format!("{name}='{value}'"));
        format!("env {preload} {shift}")
    }
}
