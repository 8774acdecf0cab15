//! "Did you mean": the known word nearest to one that is not known.

/// The candidate that `word` most likely stands for, or `None` where none is near enough to be
/// worth proposing: a slip of a letter or two, or the beginning of one that is the other's. Among
/// equally near ones the first wins.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters wrong is a slip; more is another word.
    let allowed = (word.chars().count() / 3).max(1);
    let distance = |word: &str, candidate: &str| {
        let begins =
            word.len().min(candidate.len()) >= 3 && (word.starts_with(candidate) || candidate.starts_with(word));
        if begins { 1 } else { strsim::damerau_levenshtein(word, candidate) }
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
