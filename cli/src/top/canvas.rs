//! Lines with styles, and the bytes that show them on a terminal.

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Bold,
    Dim,
    /// The selected row or view.
    Selected,
    /// The title of the column that sorts.
    Sorted,
    Red,
    Yellow,
    Cyan,
}

/// A piece of text in one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Style, pub(crate) String);

/// A line of a screen.
pub(crate) type Line = Vec<Span>;

/// Shows the other screen of the terminal, without a cursor.
pub(crate) const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the screen of before, and the cursor.
pub(crate) const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Selected => "\x1b[7m",
            Self::Sorted => "\x1b[1;4m",
            Self::Red => "\x1b[31m",
            Self::Yellow => "\x1b[33m",
            Self::Cyan => "\x1b[36m",
        }
    }
}

/// The text of a line without its styles.
#[cfg(test)]
pub(crate) fn text_of(line: &Line) -> String {
    line.iter().map(|span| span.1.as_str()).collect()
}

/// The bytes that draw these lines over the whole screen; lines are cut at `width`. Control characters
/// in names are not sent to the terminal.
pub(crate) fn frame(lines: &[Line], width: usize) -> String {
    let mut out = String::from("\x1b[H");
    for (place, line) in lines.iter().enumerate() {
        if place > 0 {
            out.push_str("\r\n");
        }
        let mut left = width;
        for Span(style, text) in line {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(left).collect();
            left -= shown.chars().count();
            match style.code() {
                "" => out.push_str(&shown),
                code => out.push_str(&format!("{code}{shown}\x1b[0m")),
            }
        }
        out.push_str("\x1b[K");
    }
    out + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_overwrites_the_last_one_and_is_cut_at_the_edge() {
        let lines = [
            vec![Span(Style::Bold, "ab".into()), Span(Style::Plain, "cd".into())],
            vec![Span(Style::Plain, "x\x1b[2Jy".into())],
        ];
        let expected = "\x1b[H\x1b[1mab\x1b[0mc\x1b[K\r\nx[2\x1b[K\x1b[J";
        assert_eq!(frame(&lines, 3), expected);
    }
}
