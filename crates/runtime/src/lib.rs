//! The runner: the only place where Fermata touches the world.
