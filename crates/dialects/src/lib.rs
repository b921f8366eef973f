//! Documents of every dialect become one plan, or located diagnostics.
