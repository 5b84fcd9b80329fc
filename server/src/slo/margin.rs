//! The margin advisor: from how long messages took to arrive, what margin would have spared useless sends.

use std::collections::BTreeMap;

use app::model::{Channel, MarginAdvice, Stamp};

use crate::config::Config;
use crate::store::{DELIVERY_BOUNDS_MS, Error, Metric, Store, Width};

/// What is looked back on.
const LOOK_BACK: i64 = 30 * 86_400_000_000;

/// Deliveries of one channel and provider: how many under each upper bound, the last one without.
#[derive(Debug, Clone, Default)]
struct Times {
    under: [u64; DELIVERY_BOUNDS_MS.len() + 1],
    useless: u64,
}

impl Times {
    fn total(&self) -> u64 {
        self.under.iter().sum()
    }

    /// The bound under which this share (in thousandths) arrived; none where it lies above the last bound.
    fn quantile(&self, milli: u64) -> Option<i64> {
        let wanted = (self.total() * milli).div_ceil(1_000);
        let mut sum = 0;
        for (n, bound) in self.under.iter().zip(DELIVERY_BOUNDS_MS) {
            sum += n;
            if sum >= wanted && sum > 0 {
                return Some(bound);
            }
        }
        None
    }

    /// Thousandths that arrived within this time, as far as whole bounds can say; none of none.
    fn within(&self, ms: i64) -> Option<u64> {
        let sum: u64 = self
            .under
            .iter()
            .zip(DELIVERY_BOUNDS_MS)
            .filter(|(_, bound)| *bound <= ms)
            .map(|(n, _)| n)
            .sum();
        (sum * 1_000).checked_div(self.total())
    }
}

/// One line for each channel and provider that has delivered anything in the last 30 days.
///
/// # Errors
/// When the store does not answer.
pub async fn advise(
    store: &dyn Store,
    config: &Config,
    now: Stamp,
) -> Result<Vec<MarginAdvice>, Error> {
    let metrics = [Metric::Delivery, Metric::DeliveredLate];
    let from = Stamp::from_micros((now.micros() - LOOK_BACK).max(0));
    let until = Width::Hour.floor(now).plus(Width::Hour.micros());
    let tallies = store.tallies(&metrics, Width::Hour, from, until).await?;
    let mut times: BTreeMap<(Channel, String), Times> = BTreeMap::new();
    for tally in tallies {
        let mut parts = tally.label.split('|');
        let (Some(channel), Some(provider)) = (parts.next(), parts.next()) else { continue };
        let Ok(channel) = channel.parse() else { continue };
        let times = times.entry((channel, provider.to_owned())).or_default();
        if tally.metric == Metric::DeliveredLate {
            times.useless += tally.n;
            continue;
        }
        let bound = parts.next().and_then(|text| text.parse::<i64>().ok());
        let at = bound
            .and_then(|bound| DELIVERY_BOUNDS_MS.iter().position(|known| *known == bound))
            .unwrap_or(DELIVERY_BOUNDS_MS.len());
        times.under[at] += tally.n;
    }
    let margin_ms = config.dispatch.margin / 1_000;
    Ok(times
        .into_iter()
        .map(|((channel, provider), times)| MarginAdvice {
            channel,
            provider,
            delivered: times.total(),
            useless: times.useless,
            p50_ms: times.quantile(500),
            p95_ms: times.quantile(950),
            p99_ms: times.quantile(990),
            margin_ms,
            within_margin_milli: times.within(margin_ms),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn quantiles_are_upper_bounds_and_nothing_has_none() {
        let mut times = Times::default();
        assert_eq!((times.quantile(500), times.within(10_000)), (None, None));
        // 90 under 2 s, 9 under 10 s, 1 above all bounds.
        times.under[1] = 90;
        times.under[5] = 9;
        times.under[16] = 1;
        assert_eq!(times.quantile(500), Some(2_000));
        assert_eq!(times.quantile(950), Some(10_000));
        assert_eq!(times.quantile(990), Some(10_000));
        assert_eq!(times.quantile(1_000), None);
        assert_eq!(times.within(9_999), Some(900));
        assert_eq!(times.within(10_000), Some(990));
    }
}
