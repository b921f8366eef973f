//! Conditions and templates: parsed once, with the list of the paths they read, and evaluated within limits.
//!
//! Small languages over the same data:
//!
//! * [`js`]: the JavaScript expressions that conditions use, evaluated natively with ECMAScript
//!   semantics. Anything outside the subset is refused as [`SyntaxKind::NotCovered`], so that the
//!   caller can use a full engine instead of getting a wrong result.
//! * [`template`]: the Scriban subset of parameters and documents, strict and typed; or templates
//!   with plain paths only.
//! * [`paths`]: plain dotted paths, and conditions that compare one with a literal.
//! * [`jsonlogic`]: JSONLogic, natively as far as the cost is bounded.
//! * [`cel`]: the limits of CEL expressions; only the sandbox parses and evaluates them.
//! * [`logic`]: conditions that say which of the last two they are.
//!
//! What must stay true:
//!
//! * Pure: the data is only read; there is no host object, no randomness and no date. The clock is
//!   used only for the time limit.
//! * Data is never read as a template or as an expression.
//! * Every recursion is bounded: by [`MAX_NESTING`] in sources, and by a counter in evaluation.
//!
//! ```
//! use fermata_expr::{Data, Limits, js::Expression};
//!
//! let trigger = serde_json::json!({ "amount": 120 });
//! let scope = Data::object([("trigger", Data::Json(&trigger))]);
//! let condition = Expression::parse("trigger.amount > 100")?;
//! assert_eq!(condition.reads()[0].to_string(), "trigger.amount");
//! assert!(condition.test(&scope, &Limits::default())?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cel;
mod compare;
mod data;
mod error;
pub mod js;
pub mod jsonlogic;
mod limits;
pub mod logic;
mod number;
pub mod paths;
mod suggest;
pub mod template;

pub use compare::equal;
pub use data::{Data, DataRef, Projection, ReadPath, Segment};
pub use error::{EvalError, EvalErrorKind, SyntaxError, SyntaxKind};
pub use limits::Limits;
pub use logic::SandboxLanguage;
pub use suggest::nearest;

/// The deepest nesting of a source (parentheses, brackets, calls, functions, blocks).
pub const MAX_NESTING: usize = 64;
