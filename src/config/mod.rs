//! File text → raw shape → a [`Config`] that cannot be wrong.
