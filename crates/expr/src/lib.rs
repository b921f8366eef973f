//! Conditions and templates: parse, check, evaluate.
