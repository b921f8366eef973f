//! The TLS provider of this process: `ring`, which builds in a fraction of the time that others take.

use rustls::crypto::ring::default_provider;

/// Makes `ring` the provider of TLS clients that are not given one, such as those of `reqwest`, which cannot be built
/// without. Call it before such a client is built; calling it again changes nothing.
pub fn install_provider() {
    let _ = default_provider().install_default(); // an error means that one is installed already
}
