//! The pure heart of Fermata: plans, events, effects and the conductor.
