//! One copy, move or removal, and what is known of both of its ends.

use std::fmt;
use std::path::PathBuf;

use forebay_core::Bucket;
use serde_json::{Value, json};

use crate::output::{Column, Row};

/// An object or a local file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Object(Bucket, String),
    File(PathBuf),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(bucket, name) => f.write_str(&bucket.object_uri(name)),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Copy,
    Move,
    Remove,
}

impl Action {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Move => "move",
            Self::Remove => "remove",
        }
    }

    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Copy => "copied",
            Self::Move => "moved",
            Self::Remove => "removed",
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: Action,
    /// The source; the object or file to remove.
    pub(super) from: End,
    /// The destination of a copy or a move.
    pub(super) to: Option<End>,
    pub(super) size: u64,
    /// Why `sync` does it.
    pub(super) reason: Option<&'static str>,
}

/// Columns of the steps that a dry run shows.
pub(super) const COLUMNS: [Column; 4] =
    [Column("ACTION", false), Column("SIZE", true), Column("FROM", false), Column("TO", false)];

impl Step {
    /// The step as a row; `error` is the failure of a step that was tried.
    pub(super) fn row(&self, dry_run: bool, error: Option<&forebay_core::Error>) -> Row {
        let shown = |end: &End| end.to_string().escape_debug().to_string();
        let to = self.to.as_ref();
        let mut json = json!({
            "action": self.action.word(), "from": self.from.to_string(),
            "to": to.map(ToString::to_string), "size": self.size,
            "done": !dry_run && error.is_none(),
        });
        if let Some(reason) = self.reason {
            json["reason"] = reason.into();
        }
        if let Some(error) = error {
            json["error"] = error_json(error);
        }
        let cells = vec![
            self.action.word().to_owned(),
            forebay_core::size::ByteSize(self.size).to_string(),
            shown(&self.from),
            to.map_or_else(|| "-".to_owned(), shown),
        ];
        Row { name: to.unwrap_or(&self.from).to_string(), cells, json }
    }
}

fn error_json(error: &forebay_core::Error) -> Value {
    json!({ "code": crate::failure::code_name(error.code), "message": error.message })
}
