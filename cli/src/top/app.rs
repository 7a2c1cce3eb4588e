//! The state of the full-screen view, and what keys change.

use console::Key;
use forebay_core::overview::Overview;

use super::grid::{Grid, View, disks, jobs};

/// The state behind the screen.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) overview: Option<Overview>,
    /// Why the last look failed.
    pub(crate) error: Option<String>,
    pub(crate) view: View,
    /// The column that each view is sorted by; `None`: as the cluster sorts.
    sorted: [Option<usize>; View::ALL.len()],
    /// The selected row.
    pub(crate) row: usize,
    /// The node or bucket that is shown alone.
    pub(crate) detail: Option<String>,
    pub(crate) shows_help: bool,
    pub(crate) has_ended: bool,
}

impl App {
    pub(crate) fn new() -> Self {
        Self {
            overview: None,
            error: None,
            view: View::Nodes,
            sorted: [None; View::ALL.len()],
            row: 0,
            detail: None,
            shows_help: false,
            has_ended: false,
        }
    }

    /// Takes the result of a look. After a failure the last overview stays.
    pub(crate) fn look(&mut self, result: Result<Overview, String>) {
        match result {
            Ok(overview) => (self.overview, self.error) = (Some(overview), None),
            Err(why) => self.error = Some(why),
        }
        self.row = self.row.min(self.grid().rows.len().saturating_sub(1));
    }

    fn place(&self) -> usize {
        View::ALL.iter().position(|view| *view == self.view).unwrap_or(0)
    }

    /// The column that the current view is sorted by.
    pub(crate) fn sorted_by(&self) -> Option<usize> {
        self.sorted[self.place()].filter(|_| self.detail.is_none())
    }

    /// The table on the screen.
    pub(crate) fn grid(&self) -> Grid {
        let Some(overview) = &self.overview else {
            return Grid { columns: Vec::new(), rows: Vec::new() };
        };
        match (&self.detail, self.view) {
            (Some(id), View::Buckets) => jobs(overview, |bucket| bucket == Some(id.as_str())),
            (Some(id), _) => disks(overview.nodes.iter().filter(|node| node.id == *id)),
            (None, view) => {
                let mut grid = view.grid(overview);
                if let Some(column) = self.sorted_by() {
                    grid.sort(column);
                }
                grid
            }
        }
    }

    pub(crate) fn press(&mut self, key: &Key) {
        match key {
            Key::Char('q') | Key::CtrlC => self.has_ended = true,
            _ if self.shows_help => self.shows_help = false,
            Key::Char('?' | 'h') => self.shows_help = true,
            Key::Escape | Key::Backspace | Key::ArrowLeft => self.detail = None,
            Key::Tab => self.show(View::ALL[(self.place() + 1) % View::ALL.len()]),
            Key::BackTab => {
                self.show(View::ALL[(self.place() + View::ALL.len() - 1) % View::ALL.len()]);
            }
            Key::Char('s') => self.sort_by_next(),
            Key::ArrowDown => {
                let last = self.grid().rows.len().saturating_sub(1);
                self.row = (self.row + 1).min(last);
            }
            Key::ArrowUp => self.row = self.row.saturating_sub(1),
            Key::Home => self.row = 0,
            Key::End => self.row = self.grid().rows.len().saturating_sub(1),
            Key::Enter | Key::ArrowRight => self.enter(),
            Key::Char(letter) => {
                let of_letter =
                    |view: &View| view.title().to_ascii_lowercase().starts_with(*letter);
                if let Some(view) = View::ALL.into_iter().find(of_letter) {
                    self.show(view);
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, view: View) {
        (self.view, self.row, self.detail) = (view, 0, None);
    }

    /// Sorts by the next column; after the last one, as the cluster sorts.
    fn sort_by_next(&mut self) {
        if self.detail.is_some() {
            return;
        }
        let columns = self.grid().columns.len();
        let next = self.sorted_by().map_or(0, |column| column + 1);
        self.sorted[self.place()] = (next < columns).then_some(next);
    }

    /// Shows the selected node or bucket alone; from a disk, its node.
    fn enter(&mut self) {
        if self.detail.is_some() || matches!(self.view, View::Clients | View::Jobs) {
            return;
        }
        let selected = self.grid().rows.get(self.row).map(|row| row.id.clone());
        if self.view == View::Disks {
            self.view = View::Nodes;
        }
        (self.detail, self.row) = (selected, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::overview;
    use super::*;

    fn press(app: &mut App, keys: &[Key]) {
        keys.iter().for_each(|key| app.press(key));
    }

    fn app() -> App {
        let mut app = App::new();
        app.look(Ok(overview()));
        app
    }

    #[test]
    fn keys_choose_the_view_the_row_and_the_column() {
        let mut app = app();
        press(&mut app, &[Key::Char('b')]);
        assert_eq!(app.view, View::Buckets);
        press(&mut app, &[Key::Tab, Key::Tab]);
        assert_eq!(app.view, View::Disks);
        press(&mut app, &[Key::BackTab, Key::Char('n')]);
        press(&mut app, &[Key::ArrowDown, Key::ArrowDown, Key::ArrowDown, Key::ArrowDown]);
        assert_eq!((app.view, app.row), (View::Nodes, 2));
        assert_eq!(app.sorted_by(), None);
        press(&mut app, &[Key::Char('s')]);
        assert_eq!(app.sorted_by(), Some(0));
        for _ in 0..app.grid().columns.len() {
            press(&mut app, &[Key::Char('s')]);
        }
        assert_eq!(app.sorted_by(), None);
        press(&mut app, &[Key::Char('q')]);
        assert!(app.has_ended);
    }

    #[test]
    fn enter_shows_the_disks_of_a_node_and_the_jobs_of_a_bucket() {
        let mut app = app();
        press(&mut app, &[Key::ArrowDown, Key::Enter]);
        assert_eq!((app.detail.as_deref(), app.grid().rows.len()), (Some("t1"), 2));
        press(&mut app, &[Key::Escape, Key::Char('b'), Key::Enter]);
        assert_eq!(app.detail.as_deref(), Some("s3://train"));
        assert_eq!(app.grid().rows[0].id, "prefetch-x7");
        press(&mut app, &[Key::Char('c'), Key::Enter]);
        assert_eq!(app.detail, None);
    }

    #[test]
    fn a_failed_look_keeps_what_was_known() {
        let mut app = app();
        app.look(Err("no gateway answers".into()));
        assert_eq!((app.grid().rows.len(), app.error.is_some()), (3, true));
        app.look(Ok(overview()));
        assert_eq!(app.error, None);
        let mut none = App::new();
        press(&mut none, &[Key::ArrowDown, Key::Enter, Key::Char('s')]);
        assert_eq!(none.detail, None);
    }

    #[test]
    fn control_c_ends_and_any_key_leaves_the_help() {
        let mut app = app();
        press(&mut app, &[Key::Char('?')]);
        assert!(app.shows_help);
        press(&mut app, &[Key::Char('b')]);
        assert!(!app.shows_help && app.view == View::Nodes);
        app.press(&Key::CtrlC);
        assert!(app.has_ended);
    }
}
