//! What a person should know.

/// Something worth telling about one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Something of ours in the kernel is not as we left it.
    Drift {
        /// How many things.
        count: usize,
        /// The first of them.
        examples: Vec<String>,
    },
    /// Something that wants attention.
    Warning(String),
}
