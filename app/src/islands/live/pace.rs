//! When to read again: pure, so that it is tested without a browser. Instants are milliseconds of one clock.

use super::refresh::Refresh;

/// A hint is followed by others of the same commit; waiting this long folds them into one read.
pub const DEBOUNCE_MS: f64 = 150.0;
/// However busy the system is, a page is read at most once in this time. With the delay above and the answer it stays
/// below the second within which a freeze must be seen everywhere.
pub const SPACING_MS_MIN: f64 = 500.0;
/// A stream can be dead without either end noticing. Reading this often whatever it says bounds how old a page can get.
pub const SILENCE_MS_MAX: f64 = 60_000.0;
const BACKOFF_MS_FIRST: f64 = 1_000.0;
const BACKOFF_MS_MAX: f64 = 30_000.0;

/// How long a page may go unread without any hint; none: for ever.
pub fn period_ms(refresh: Refresh) -> Option<f64> {
    match refresh {
        Refresh::Off => None,
        Refresh::Every(seconds) => Some(f64::from(seconds) * 1_000.0),
        Refresh::Live => Some(SILENCE_MS_MAX),
    }
}

/// How long to wait before the read that a hint asks for.
pub fn after_hint_ms(now: f64, last_read: f64) -> f64 {
    DEBOUNCE_MS.max(last_read + SPACING_MS_MIN - now)
}

/// How long to wait after so many failures in a row (1 is the first).
pub fn after_failure_ms(failures: u32) -> f64 {
    let doublings = failures.saturating_sub(1).min(16);
    (BACKOFF_MS_FIRST * f64::from(1_u32 << doublings)).min(BACKOFF_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_hints_is_one_read_in_half_a_second() {
        assert_eq!(after_hint_ms(10_000.0, 0.0), DEBOUNCE_MS);
        assert_eq!(after_hint_ms(10_000.0, 9_900.0), 400.0);
        assert_eq!(after_hint_ms(10_000.0, 10_000.0), SPACING_MS_MIN);
    }

    #[test]
    fn failures_back_off_to_a_bound() {
        assert_eq!(after_failure_ms(1), 1_000.0);
        assert_eq!(after_failure_ms(2), 2_000.0);
        assert_eq!(after_failure_ms(6), BACKOFF_MS_MAX);
        assert_eq!(after_failure_ms(u32::MAX), BACKOFF_MS_MAX);
    }

    #[test]
    fn off_never_reads() {
        assert_eq!(period_ms(Refresh::Off), None);
        assert_eq!(period_ms(Refresh::Every(2)), Some(2_000.0));
    }
}
