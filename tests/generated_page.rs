//! Compares a generated page of `docs/` with its file, or writes the file when
//! `FOREBAY_UPDATE_DOCS=1` is set (`make docs`). Included by the crates that generate pages.

use std::path::Path;

/// Panics at the first line in which `docs/{name}` differs from `page`.
pub(crate) fn check(name: &str, page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("FOREBAY_UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(&file, page).expect("the folder of the pages can be written");
        return;
    }
    let current = std::fs::read_to_string(&file).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (current, generated) = (lines(&current), lines(page));
    let differs =
        (0..current.len().max(generated.len())).find(|&i| current.get(i) != generated.get(i));
    if let Some(i) = differs {
        panic!(
            "docs/{name} is out of date at line {}:\n  file:      {}\n  generated: {}\nrun `make docs`",
            i + 1,
            current.get(i).map_or("(no line)", String::as_str),
            generated.get(i).map_or("(no line)", String::as_str),
        );
    }
}

/// A text as a cell of a Markdown table.
pub(crate) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A text as the end of a sentence, with a final period.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', ':', '?']) {
        text.into()
    } else {
        format!("{text}.")
    }
}
