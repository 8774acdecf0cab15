//! Memory that is not used any more, given back.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "the allocator of the C library has no other interface"))]

/// Gives what has been freed back to the system. To be called where very much has just been freed, as after a
/// configuration was read: the C library keeps it for itself otherwise, however long nobody wants it.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time by any thread, and touches nothing that is in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
