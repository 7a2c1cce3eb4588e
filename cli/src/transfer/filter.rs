//! `--include` and `--exclude`: which of the objects or files below a source are taken.

use clap::Args;

use super::pattern::Pattern;

/// The patterns of a command. They apply to the path below the source.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct FilterArgs {
    /// Take only paths that match this pattern, or one of several; * is any text, ? one character
    #[arg(long, value_name = "PATTERN")]
    include: Vec<Pattern>,
    /// Leave out paths that match this pattern, also those that --include takes
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<Pattern>,
}

impl FilterArgs {
    /// Whether a path below the source is taken.
    pub(super) fn takes(&self, path: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Whether all paths are taken.
    pub(super) fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> FilterArgs {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        FilterArgs { include: all(include), exclude: all(exclude) }
    }

    #[test]
    fn what_is_excluded_is_left_out_even_if_it_is_included() {
        let both = filter(&["*.jpg", "*.png"], &["tmp/*"]);
        assert!(both.takes("a/1.jpg") && both.takes("1.png"));
        assert!(!both.takes("tmp/1.jpg") && !both.takes("1.txt"));
        assert!(filter(&[], &["*.bak"]).takes("x") && filter(&[], &[]).takes("x"));
    }
}
