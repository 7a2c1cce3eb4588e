//! Writes by Google's crate, which is used for Google's own hosts only, on a real fake-gcs-server.

use super::gcs::{fixture_with, settings};
use super::{Fixture, conformance};
use crate::GcsSettings;

async fn fixture() -> Option<Fixture> {
    fixture_with(|endpoint| GcsSettings { crate_for_all: true, ..settings(endpoint) }).await
}

conformance! { fixture:
    put_then_get_gives_the_bytes_and_the_same_meta_as_stat
    an_empty_object_is_an_object
    every_overwrite_has_another_version
    unusual_names_are_kept
    a_put_whose_source_fails_changes_nothing
    custom_metadata_comes_back
}
