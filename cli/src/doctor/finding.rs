//! Findings: the results of checks.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// The result of one check, and the advice if it is a fault.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(super) check: String,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
    pub(super) hint: String,
}

impl Finding {
    pub(super) fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        let (check, detail) = (check.into(), detail.into());
        Self { check, verdict: Verdict::Ok, detail, hint: String::new() }
    }

    pub(super) fn bad(
        verdict: Verdict,
        check: impl Into<String>,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check: check.into(), verdict, detail: detail.into(), hint: hint.into() }
    }
}
