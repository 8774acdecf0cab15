//! Rule 3 where two failures within the long window are enough: a Markov chain whose state is how long ago the last
//! regular probe was lost.
//!
//! A step is a regular probe. It is lost by chance, and then two more are sent; if one of these is lost too, there are
//! two failures at once. If both are answered, the next loss decides: within the window it makes two, later it is again
//! the first. How many intervals fit into the window is a matter of jitter, so near its end a loss is within it by
//! chance.

use super::tail::cluster;

/// Jitter is even over a tenth of the interval: its deviation, in intervals.
const DEVIATION: f64 = 0.1 / 3.464_101_615_137_754_6;
/// So many deviations away nothing happens by chance any more.
const FAR: f64 = 6.0;
/// More work than this would be noticed.
const WORK: f64 = 1e7;
/// A probability that is known by the mean time alone.
const RARE: f64 = 1e-9;

/// The chain.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    loss: f64,
    /// A lost regular probe whose two confirming ones are answered.
    single: f64,
    /// From so many intervals on, how likely two losses are further apart than the window.
    first: usize,
    apart: Vec<f64>,
}

impl Chain {
    /// A window of so many intervals.
    pub(super) fn new(window: f64, loss: f64) -> Self {
        let spread = FAR * DEVIATION * window.sqrt();
        let (from, to) = ((window - spread).floor().max(1.0), (window + spread).ceil().max(1.0));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no more than the intervals of a day"
        )]
        let (first, last) = (from as usize, to as usize);
        let apart = (first..=last).map(|count| {
            let count = count as f64;
            1.0 - normal((window - count) / (DEVIATION * count.sqrt()))
        });
        Self { loss, single: cluster(loss)[1], first, apart: apart.collect() }
    }

    /// The mean number of steps from a clean window to two failures in one.
    #[expect(clippy::cast_precision_loss, reason = "no more than the intervals of a day")]
    pub(super) fn mean(&self) -> f64 {
        let kept = 1.0 - self.loss;
        // That the next loss is in time; by what it is rather than by what is missing to 1, which would have no digits
        // where losses are very rare.
        let sure = -((self.first as f64 - 1.0) * (-self.loss).ln_1p()).exp_m1();
        let each = (self.first..).zip(&self.apart).map(|(ago, apart)| (1.0 - apart) * self.loss * self.kept(ago - 1));
        let in_time: f64 = sure + each.sum::<f64>();
        // To the first loss; and if that is a single one, to the next, again and again while the next is too late.
        let single = kept * kept;
        let ends = self.loss * (2.0 - self.loss) + single * in_time;
        1.0 / self.loss + single / (self.loss * ends)
    }

    /// The probability that it has happened within so many steps.
    pub(super) fn within(&self, steps: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let width = self.apart.len() as f64 + 4.0;
        let mean = self.mean();
        if steps * width > WORK || steps < mean * RARE {
            // By then it is the same at each step; and what is this rare would have no digits below.
            return -(-steps / mean).exp_m1();
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        let steps = steps.round() as usize;
        let kept = 1.0 - self.loss;
        let beyond = self.first + self.apart.len();
        let (mut singles, mut none) = (vec![0.0; steps + 1], 1.0);
        let (mut late, mut waiting) = (0.0, 0.0);
        for step in 1..=steps {
            late *= kept;
            late += step.checked_sub(beyond).map_or(0.0, |at| singles[at] * self.kept(beyond - 1));
            let near = (self.first..).zip(&self.apart).take_while(|(ago, _)| *ago <= step);
            let near: f64 = near.map(|(ago, apart)| singles[step - ago] * self.kept(ago - 1) * apart).sum();
            singles[step] = self.single * (none + near + late);
            none *= kept;
            waiting = waiting * kept + singles[step];
            if none + waiting < 1e-15 {
                return 1.0;
            }
        }
        1.0 - none - waiting
    }

    /// The probability that so many regular probes are not lost.
    fn kept(&self, count: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "no more than the intervals of a day")]
        let count = count as f64;
        (count * (-self.loss).ln_1p()).exp()
    }
}

/// The normal distribution's probability below a number of deviations (Abramowitz and Stegun 7.1.26, to 1.5e-7).
fn normal(deviations: f64) -> f64 {
    let x = deviations.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let polynomial = factors.iter().fold(0.0, |sum, factor| sum * t + factor) * t;
    let beyond = polynomial * (-x * x).exp() / 2.0;
    if deviations < 0.0 { beyond } else { 1.0 - beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_likely_by_the_mean_time_is_what_a_memory_of_that_length_makes_of_it() {
        for (window, loss) in [(300.0, 0.001), (30.0, 0.01), (5.0, 0.02)] {
            let chain = Chain::new(window, loss);
            // For an exponential distribution, 1 - 1/e; the window's memory takes a little off.
            let within = chain.within(chain.mean());
            assert!((0.58..0.64).contains(&within), "{window} {loss}: {within}");
            assert!(chain.within(0.0).abs() < 1e-12 && chain.within(40.0 * chain.mean()) > 0.999_999);
        }
    }

    #[test]
    fn losses_that_are_very_rare_have_their_digits() {
        // Two failures in a window come of one loss and another in that window, or beside it at once.
        for loss in [1e-9, 1e-18, 1e-48] {
            let (chain, window) = (Chain::new(30.0, loss), 30.0);
            let mean = 1.0 / loss / (loss * (window + 2.0));
            assert!((chain.mean() / mean - 1.0).abs() < 0.05, "{loss}: {} {mean}", chain.mean());
            let within = chain.within(1_000.0);
            assert!((within * chain.mean() / 1_000.0 - 1.0).abs() < 1e-6, "{loss}: {within}");
        }
    }

    #[test]
    fn the_normal_distribution_is_that() {
        for (deviations, below) in [(0.0, 0.5), (1.0, 0.841_344_7), (-2.0, 0.022_750_1), (5.0, 0.999_999_7)] {
            assert!((normal(deviations) - below).abs() < 1e-6, "{deviations}");
        }
    }
}
