//! Where runs live: one trait, SQLite and memory behind it.
