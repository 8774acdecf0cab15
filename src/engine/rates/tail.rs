//! How many failures a number of regular probes comes to, each of which is lost by chance, and has two more probes
//! sent that may be lost as well.

/// Where a probability is too small to be worked with, an estimate by exponentials is none the worse.
const MANY: f64 = 600.0;

/// The chances of a regular probe to bring 0, 1, 2 or 3 failures.
pub(super) fn cluster(loss: f64) -> [f64; 4] {
    let kept = 1.0 - loss;
    [kept, loss * kept * kept, 2.0 * loss * loss * kept, loss * loss * loss]
}

/// The probability that so many regular probes bring at least `least` failures: no less than the first, no more than
/// the second.
pub(super) fn tail(probes: f64, loss: f64, least: f64) -> [f64; 2] {
    if least <= 0.0 {
        return [1.0; 2];
    }
    if least > 3.0 * probes {
        return [0.0; 2];
    }
    let mean = probes * loss;
    if mean > MANY { estimated(probes, loss, least) } else { [summed(probes, loss, least).clamp(0.0, 1.0); 2] }
}

/// By the recursion for sums of a binomial number of terms (Panjer 1981).
fn summed(probes: f64, loss: f64, least: f64) -> f64 {
    let [_, one, two, three] = cluster(loss).map(|chance| chance / loss);
    let (a, b) = (-loss / (1.0 - loss), (probes + 1.0) * loss / (1.0 - loss));
    let mut last = [(probes * (-loss).ln_1p()).exp(), 0.0, 0.0];
    let (mut below, mut above, mut count) = (last[0], 0.0, 0.0);
    while count < 3.0 * probes {
        count += 1.0;
        let weight = |size: f64| a + b * size / count;
        let next = (weight(1.0) * one * last[0] + weight(2.0) * two * last[1] + weight(3.0) * three * last[2]).max(0.0);
        last = [next, last[0], last[1]];
        if count < least {
            below += next;
            continue;
        }
        above += next;
        if count > 2.0 * probes * loss && next <= above * 1e-15 {
            break;
        }
    }
    // The smaller of the two has lost no digits.
    if above < 0.5 { above } else { 1.0 - below }
}

/// By the bounds of Chernoff: on the binomial number of lost regular probes alone, and on three failures for each.
fn estimated(probes: f64, loss: f64, least: f64) -> [f64; 2] {
    let mean = probes * loss;
    let at_least = if least < mean { -(-(mean - least).powi(2) / (2.0 * mean)).exp_m1() } else { 0.0 };
    let share = (least / 3.0 / probes).min(1.0);
    if share <= loss {
        return [at_least, 1.0];
    }
    let part = |own: f64, other: f64| if own > 0.0 { own * (own / other).ln() } else { 0.0 };
    let distance = part(share, loss) + part(1.0 - share, 1.0 - loss);
    [at_least, (-probes * distance).exp()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By going through every number of lost probes and of confirming ones.
    fn counted(probes: u32, loss: f64, least: u32) -> f64 {
        let mut sums = vec![1.0];
        for _ in 0..probes {
            let mut next = vec![0.0; sums.len() + 3];
            for (sum, chance) in sums.iter().enumerate() {
                cluster(loss).iter().enumerate().for_each(|(more, part)| next[sum + more] += chance * part);
            }
            sums = next;
        }
        sums.iter().skip(least as usize).sum()
    }

    #[test]
    fn the_recursion_agrees_with_counting() {
        for (probes, loss, least) in
            [(1, 0.05, 1), (1, 0.05, 3), (30, 0.02, 2), (300, 0.01, 3), (40, 0.3, 20), (9, 0.001, 9)]
        {
            let [low, high] = tail(f64::from(probes), loss, f64::from(least));
            let counted = counted(probes, loss, least);
            assert!((low - counted).abs() <= 1e-9 * counted && low == high, "{probes} {loss} {least}: {low} {counted}");
        }
    }

    #[test]
    fn what_is_estimated_lies_around_what_is_so() {
        let exact = |least: f64| summed(20_000.0, 0.02, least);
        for least in [300.0, 400.0, 1_300.0, 1_500.0] {
            let [low, high] = estimated(20_000.0, 0.02, least);
            assert!(low <= exact(least) && exact(least) <= high + 1e-12, "{least}: {low} {} {high}", exact(least));
        }
    }
}
