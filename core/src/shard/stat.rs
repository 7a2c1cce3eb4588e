//! Time and mode of an archive's member.
//!
//! Times are seconds since 1970 (UTC) in 32 unsigned bits. A time before 1970 becomes 1970, a time
//! after 2106-02-07 the last second that fits; fractions are dropped.

use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use crate::date;

/// Permissions, set-id and sticky bits.
const MODE: u32 = 0o7777;
/// Flag for [`Stat::local`], next to the twelve bits of the mode.
const LOCAL: u16 = 1 << 15;
/// 1980-01-01 in seconds since 1970: DOS has no earlier time.
const DOS_BEGIN: u32 = 315_532_800;
const DOS_YEAR: i16 = 1980;

/// Time and mode of a member. Its text form has two numbers: the time, and the mode with bit 15 for
/// `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u16)", into = "(u32, u16)")]
pub struct Stat {
    /// When it was last changed, in seconds since 1970.
    pub mtime: u32,
    /// Permissions, set-id and sticky bits: at most 0o7777.
    pub mode: u16,
    /// Whether the time is a DOS time, in steps of 2 s and of an unknown time zone; `mtime` treats
    /// it as UTC.
    pub local: bool,
}

impl Default for Stat {
    /// The stat of members that are made from objects: 1970, 0644.
    fn default() -> Self {
        Self { mtime: 0, mode: 0o644, local: false }
    }
}

impl From<(u32, u16)> for Stat {
    fn from((mtime, mode): (u32, u16)) -> Self {
        Self { mtime, mode: mode & MODE as u16, local: mode & LOCAL != 0 }
    }
}

impl From<Stat> for (u32, u16) {
    fn from(stat: Stat) -> Self {
        (stat.mtime, (stat.mode & MODE as u16) | if stat.local { LOCAL } else { 0 })
    }
}

impl Stat {
    /// Builds a stat from any time and mode; times outside the range are clamped as described in
    /// the module, and the file type bits of the mode are dropped.
    pub fn new(mtime: i64, mode: u32) -> Self {
        Self { mtime: seconds(mtime), mode: (mode & MODE) as u16, local: false }
    }

    /// Builds a stat from the fields of a zip archive's header. An invalid date becomes 1970.
    pub fn of_dos(date: u16, time: u16, mode: u32) -> Self {
        let mtime = from_dos(date, time).unwrap_or(0);
        Self { local: true, ..Self::new(mtime, mode) }
    }

    /// Date and time in the form of zip headers, in steps of 2 s from 1980 on; an earlier time
    /// becomes the first of them.
    pub fn dos(self) -> (u16, u16) {
        let at = date::utc(u64::from(self.mtime.max(DOS_BEGIN)) * 1_000_000_000);
        let date =
            ((at.year() - DOS_YEAR) << 9) | (i16::from(at.month()) << 5) | i16::from(at.day());
        let time = (i32::from(at.hour()) << 11)
            | (i32::from(at.minute()) << 5)
            | i32::from(at.second() / 2);
        // Years end at 2106, so that both have at most 16 bits.
        (date as u16, time as u16)
    }
}

fn seconds(mtime: i64) -> u32 {
    u32::try_from(mtime.max(0)).unwrap_or(u32::MAX)
}

/// Unix seconds of a date and a time of DOS; `None` if there is no such time.
fn from_dos(date: u16, time: u16) -> Option<i64> {
    let (year, month, day) = (DOS_YEAR + (date >> 9) as i16, (date >> 5) & 15, date & 31);
    let (hour, minute, second) = (time >> 11, (time >> 5) & 63, (time & 31) * 2);
    let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    let (hour, minute) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?);
    let at = DateTime::new(year, month, day, hour, minute, i8::try_from(second).ok()?, 0).ok()?;
    i64::try_from(date::unix_seconds(at)?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_and_modes_that_do_not_fit_are_bounded() {
        assert_eq!(Stat::new(-1, 0o644), Stat::default());
        assert_eq!(Stat::new(i64::MIN, 0o100_644), Stat::default());
        let last = Stat { mtime: u32::MAX, mode: 0o7777, local: false };
        assert_eq!(Stat::new(i64::MAX, u32::MAX), last);
        assert_eq!(Stat::new(1 << 32, 0o7777), last);
        assert_eq!(Stat::new(1 << 31, 0).mtime, 1 << 31);
    }

    #[test]
    fn dos_knows_the_time_from_1980_on_in_steps_of_two_seconds() {
        // 2024-02-29 23:59:59.
        let stat = Stat::new(1_709_251_199, 0o600);
        let (date, time) = stat.dos();
        assert_eq!((date, time), ((44 << 9) | (2 << 5) | 29, (23 << 11) | (59 << 5) | 29));
        let back = Stat::of_dos(date, time, 0o600);
        assert_eq!(back, Stat { mtime: 1_709_251_198, mode: 0o600, local: true });
        for early in [0, 1, DOS_BEGIN - 1, DOS_BEGIN] {
            assert_eq!(Stat { mtime: early, ..stat }.dos(), (0x21, 0));
        }
        assert_eq!(Stat::of_dos(0x21, 0, 0).mtime, DOS_BEGIN);
    }

    #[test]
    fn dates_that_are_none_are_1970() {
        let at = |month: u16, day: u16, time| {
            Stat::of_dos((20 << 9) | (month << 5) | day, time, 0).mtime
        };
        for (month, day, time) in [
            (0, 1, 0),
            (13, 1, 0),
            (1, 0, 0),
            (2, 30, 0),
            (4, 31, 0),
            (1, 1, 24 << 11),
            (1, 1, 60 << 5),
            (1, 1, 30),
        ] {
            assert_eq!(at(month, day, time), 0, "{month} {day} {time}");
        }
        assert!(at(2, 29, 0) > DOS_BEGIN, "2000 has one");
        assert_eq!(Stat::of_dos((127 << 9) | (12 << 5) | 31, 0, 0).mtime, u32::MAX, "2107");
    }

    #[test]
    fn as_text_it_is_two_numbers() {
        let stat = Stat { mtime: 7, mode: 0o600, local: true };
        assert_eq!(serde_json::to_string(&stat).unwrap(), format!("[7,{}]", 0o600 | 1 << 15));
        assert_eq!(serde_json::from_str::<Stat>("[0,420]").unwrap(), Stat::default());
    }

    proptest! {
        #[test]
        fn every_time_that_dos_has_comes_back(mtime in DOS_BEGIN..=u32::MAX, mode in 0u16..0o10000) {
            let stat = Stat { mtime, mode, local: true };
            let (date, time) = stat.dos();
            prop_assert_eq!(
                Stat::of_dos(date, time, u32::from(mode)),
                Stat { mtime: mtime & !1, ..stat }
            );
            prop_assert_eq!(Stat::from(<(u32, u16)>::from(stat)), stat);
        }

        #[test]
        fn no_fields_panic(date in any::<u16>(), time in any::<u16>(), mode in any::<u32>()) {
            let stat = Stat::of_dos(date, time, mode);
            stat.dos();
        }
    }
}
