//! Time stamps as RFC 3339, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Formats a time like `2026-11-21T22:15:00.123Z`. A time before 1970 becomes 1970-01-01T00:00:00.000Z.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since.as_secs() / 86_400);
    let seconds = since.as_secs() % 86_400;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
}

/// Removes `-` and `:` from an RFC 3339 time, for use in a file name.
pub fn compact(rfc3339: &str) -> String {
    rfc3339.chars().filter(|c| !matches!(c, '-' | ':')).collect()
}

/// Returns year, month and day of the date `days` after 1970-01-01, in the Gregorian calendar.
///
/// Years begin on March 1, so that a leap day is the last day of its year:
/// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_moments() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_299_300_123, "2026-11-21T22:15:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn names_sort_like_time() {
        assert_eq!(compact("2026-11-21T22:15:00.123Z"), "20261121T221500.123Z");
    }

    #[test]
    fn every_day_of_a_leap_cycle_follows_the_one_before() {
        let mut before = civil(0);
        for days in 1..146_097 {
            let today = civil(days);
            assert!(today > before && today.1 <= 12 && today.2 <= 31, "{today:?}");
            before = today;
        }
        assert_eq!(before, (2369, 12, 31));
    }
}
