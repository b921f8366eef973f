//! Traces: one trace for each run, over all processes that work on it.
//!
//! | span | parent | emitted when |
//! | --- | --- | --- |
//! | execution | the span of the caller's `traceparent`, or none | the end of the run is durable |
//! | node | its execution | the end of the node is durable |
//! | action, one for each attempt | its node | the attempt is recorded |
//!
//! The execution of a child run is a child of the action that started it, and has a link to it.
//!
//! What must stay true:
//! * Nothing is open while a run waits. A span is built from a commit, after the commit is durable, with times from the journal.
//! * Ids are computed from the run, the node and the attempt. So every process, and a repetition after a crash, uses the same
//!   ids, and the parent of a span is known before the parent is emitted.
//! * A trace has the trace id of the caller's `traceparent`, which is stored with the run, or else the id of the run.
//! * Spans contain names, statuses and codes, but no payloads and no messages.
//! * The queue is bounded. A span that does not fit is dropped and counted; nothing waits for the collector.

mod spans;

pub(crate) use spans::{ExecutionFacts, execution, millis};

use fermata_core::{NodeId, RunId, Timestamp};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};
use tokio::sync::mpsc;

/// The id of a trace.
pub type TraceId = [u8; 16];

/// The id of a span.
pub type SpanId = [u8; 8];

/// A position in a trace, as `traceparent` carries it (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether the spans of the trace are kept.
    pub sampled: bool,
}

impl FromStr for TraceContext {
    type Err = ();

    /// `00-{32 hex digits}-{16 hex digits}-{2 hex digits}`, in lower case. Later versions may have more after that.
    fn from_str(text: &str) -> Result<TraceContext, ()> {
        let bytes = text.as_bytes();
        let (version, rest) = (bytes.get(..2).ok_or(())?, bytes.get(55..).ok_or(())?);
        let is_later = version != b"00" && rest.first() == Some(&b'-');
        if version == b"ff" || !(rest.is_empty() || is_later) {
            return Err(());
        }
        if [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
            return Err(());
        }
        let [_] = hex::<1>(version)?;
        let context = TraceContext {
            trace: hex(&bytes[3..35])?,
            span: hex(&bytes[36..52])?,
            sampled: hex::<1>(&bytes[53..55])?[0] & 1 == 1,
        };
        match context.trace == [0; 16] || context.span == [0; 8] {
            true => Err(()),
            false => Ok(context),
        }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace), u64::from_be_bytes(self.span));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.sampled))
    }
}

fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], ()> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(()),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

/// The trace of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunTrace {
    pub run: RunId,
    /// What the caller sent.
    given: Option<TraceContext>,
}

impl RunTrace {
    pub fn new(run: RunId, given: Option<TraceContext>) -> RunTrace {
        RunTrace { run, given }
    }

    /// The trace of a stored run. A text that is not a `traceparent` counts as none.
    pub fn of_stored(run: RunId, traceparent: Option<&str>) -> RunTrace {
        RunTrace::new(run, traceparent.and_then(|text| text.parse().ok()))
    }

    pub fn trace_id(&self) -> TraceId {
        self.given.map_or(*self.run.0.as_bytes(), |given| given.trace)
    }

    /// What the attempt of a node sends to services and child runs. Without a tracer that is what the caller sent: this
    /// process adds no span between.
    pub fn of_attempt(&self, tracer: Option<&Tracer>, node: &NodeId, attempt: u32) -> Option<TraceContext> {
        match tracer {
            None => self.given,
            Some(tracer) => Some(TraceContext {
                trace: self.trace_id(),
                span: self.action_span(node, attempt),
                sampled: tracer.samples(self),
            }),
        }
    }

    pub fn execution_span(&self) -> SpanId {
        self.span_id(b'e', "", 0)
    }

    pub fn node_span(&self, node: &NodeId) -> SpanId {
        self.span_id(b'n', node.as_str(), 0)
    }

    pub fn action_span(&self, node: &NodeId, attempt: u32) -> SpanId {
        self.span_id(b'a', node.as_str(), attempt)
    }

    fn span_id(&self, kind: u8, node: &str, attempt: u32) -> SpanId {
        let mut hash = Sha256::new();
        hash.update(self.run.0.as_bytes());
        hash.update([kind]);
        hash.update(attempt.to_be_bytes());
        hash.update(node.as_bytes());
        let mut id = SpanId::default();
        id.copy_from_slice(&hash.finalize()[..8]);
        match id == [0; 8] {
            true => [1; 8],
            false => id,
        }
    }
}

/// Where spans go. Cheap to clone.
#[derive(Clone)]
pub struct Tracer {
    queue: mpsc::Sender<Span>,
    /// Traces of which these bits of the id are below this number are kept.
    keep_below: u64,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracer({})", self.keep_below)
    }
}

impl Tracer {
    /// A tracer with a queue of `capacity` spans. Of the traces that begin here, the share `ratio` is kept; for all others the
    /// caller decides.
    pub fn new(capacity: usize, ratio: f64) -> (Tracer, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(capacity);
        // A float that is too large becomes the largest integer.
        let keep_below = (ratio.clamp(0.0, 1.0) * 2f64.powi(56)) as u64;
        (Tracer { queue, keep_below }, spans)
    }

    /// Whether the spans of a run are kept. The same in every process.
    pub(crate) fn samples(&self, trace: &RunTrace) -> bool {
        match trace.given {
            Some(given) => given.sampled,
            None => mixed(trace.trace_id()) & ((1 << 56) - 1) < self.keep_below,
        }
    }

    /// Queues a span. False if the queue is full.
    pub(crate) fn emit(&self, span: Span) -> bool {
        self.queue.try_send(span).is_ok()
    }
}

/// Bits that depend on all bits of an id (the last steps of SplitMix64). The ids of runs that start in the same millisecond
/// differ little.
fn mixed(id: TraceId) -> u64 {
    let id = u128::from_be_bytes(id);
    let mut bits = (id as u64) ^ ((id >> 64) as u64).rotate_left(32);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A finished piece of work.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: String,
    /// Whether it is a call to a service.
    pub is_call: bool,
    pub start: Timestamp,
    pub end: Timestamp,
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The code of the failure, if it failed.
    pub failure: Option<String>,
    /// The span that started this one, if it is of another run.
    pub link: Option<TraceContext>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Attribute {
    Text(String),
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Attribute {
        Attribute::Text(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn traceparent_is_read_as_the_recommendation_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context: TraceContext = text.parse().unwrap();
        assert_eq!((context.to_string().as_str(), context.sampled), (text, true));
        let flags = |flags: &str| {
            format!("{}{flags}", &text[..53])
                .parse::<TraceContext>()
                .unwrap()
                .sampled
        };
        assert_eq!(
            [flags("00"), flags("02"), flags("03"), flags("ff")],
            [false, false, true, true]
        );
        let later = format!("cc{}", &text[2..]);
        assert!(later.parse::<TraceContext>().is_ok());
        assert!(
            format!("{later}-what-the-future-will-be")
                .parse::<TraceContext>()
                .is_ok()
        );
        for wrong in [
            String::new(),
            "00".to_owned(),
            text.to_uppercase(),
            text[..54].to_owned(),
            format!("{text}-more"),
            format!("{text} "),
            format!("{later}.more"),
            format!("ff{}", &text[2..]),
            format!("0x{}", &text[2..]),
            text.replace('-', "_"),
            text.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            text.replace("b7ad6b7169203331", &"0".repeat(16)),
            text.replace("b7ad", "b7aé"),
            format!("{}zz", &text[..53]),
        ] {
            assert!(wrong.parse::<TraceContext>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_are_the_same_in_every_process() {
        let run = RunId(Uuid::from_u128(0x0199_a7c2_6f1e_7b30_9d5e_2f6a_0c1b_4e8d));
        let (trace, node) = (RunTrace::new(run, None), NodeId::from("charge"));
        assert_eq!(trace.trace_id(), *run.0.as_bytes());
        assert_eq!(trace.execution_span(), RunTrace::new(run, None).execution_span());
        let all = [
            trace.execution_span(),
            trace.node_span(&node),
            trace.action_span(&node, 1),
            trace.action_span(&node, 2),
        ];
        for (at, id) in all.iter().enumerate() {
            assert!(!all[..at].contains(id));
        }
    }

    #[test]
    fn caller_decides_about_its_traces_and_the_ratio_about_others() {
        let given = |sampled| TraceContext {
            trace: [7; 16],
            span: [8; 8],
            sampled,
        };
        let (all, _spans) = Tracer::new(1, 1.0);
        let (none, _spans) = Tracer::new(1, 0.0);
        let (half, _spans) = Tracer::new(1, 0.5);
        let mut kept = 0;
        for _ in 0..1000 {
            let run = RunId(Uuid::now_v7());
            let trace = RunTrace::new(run, None);
            assert!(all.samples(&trace) && !none.samples(&trace));
            kept += usize::from(half.samples(&trace));
            for sampled in [true, false] {
                let trace = RunTrace::new(run, Some(given(sampled)));
                assert_eq!([all.samples(&trace), none.samples(&trace)], [sampled, sampled]);
            }
        }
        assert!((350..650).contains(&kept), "{kept}");
    }

    #[test]
    fn without_a_tracer_the_callers_context_is_passed_on() {
        let run = RunId(Uuid::now_v7());
        let given = TraceContext {
            trace: [7; 16],
            span: [8; 8],
            sampled: false,
        };
        let node = NodeId::from("charge");
        assert_eq!(RunTrace::new(run, Some(given)).of_attempt(None, &node, 1), Some(given));
        assert_eq!(RunTrace::new(run, None).of_attempt(None, &node, 1), None);
        let (tracer, _spans) = Tracer::new(1, 1.0);
        let sent = RunTrace::new(run, Some(given))
            .of_attempt(Some(&tracer), &node, 1)
            .unwrap();
        assert_eq!((sent.trace, sent.sampled), ([7; 16], false));
        assert_ne!(sent.span, [8; 8]);
    }
}
