//! Numbers with a least value, refused below it.

use serde::{Deserialize, Serialize};

/// A whole number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Positive(u32);

impl TryFrom<u32> for Positive {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        match number {
            0 => Err("it must be at least 1"),
            number => Ok(Positive(number)),
        }
    }
}

impl From<Positive> for u32 {
    fn from(number: Positive) -> u32 {
        number.0
    }
}

impl Positive {
    /// The nearest one to `number`.
    pub fn of(number: usize) -> Positive {
        Positive(u32::try_from(number).unwrap_or(u32::MAX).max(1))
    }

    /// The number.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// What a wait is multiplied with: 1 or more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Factor(f64);

impl TryFrom<f64> for Factor {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        match number.is_finite() && number >= 1.0 {
            true => Ok(Factor(number)),
            false => Err("it must be at least 1"),
        }
    }
}

impl From<Factor> for f64 {
    fn from(factor: Factor) -> f64 {
        factor.0
    }
}

impl Factor {
    /// The nearest one to `number`.
    pub fn of(number: f64) -> Factor {
        Factor(number.max(1.0))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}
