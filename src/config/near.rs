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
        if begins {
            return 1;
        }
        // Lengths that differ by too much settle it without looking at the letters.
        let gap = word.chars().count().abs_diff(candidate.chars().count());
        if gap > allowed { gap } else { strsim::damerau_levenshtein(word, candidate) }
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_word_of_another_length_is_another_word() {
        let known = ["ams-1", "fra-1"];
        assert_eq!(nearest("amz-1", known), Some("ams-1"));
        assert_eq!(nearest("zürich-amsterdam-backbone", known), None);
        // Told apart by its length alone: letter by letter it would take minutes.
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }
}
