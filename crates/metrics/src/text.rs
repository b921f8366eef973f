//! The text format of Prometheus, version 0.0.4.

use crate::{Counter, Histogram};
use std::{fmt::Write, sync::atomic::Ordering::Relaxed};

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Label names and values.
pub type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Metrics as text. A metric is announced once with [`Text::metric`]; its samples follow it.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
    name: &'static str,
}

impl Text {
    /// The content type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Announces a metric.
    pub fn metric(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.name = name;
        let kind = kind.as_str();
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the metric that was announced last.
    pub fn sample(&mut self, labels: Pairs<'_>, value: impl std::fmt::Display) {
        self.line("", labels, None, value);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &'static str, help: &str, counter: &Counter) {
        self.metric(name, Kind::Counter, help);
        self.sample(&[], counter.get());
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: impl std::fmt::Display) {
        self.metric(name, Kind::Gauge, help);
        self.sample(&[], value);
    }

    /// The buckets, sum and count of a histogram of the metric that was announced last.
    pub fn histogram(&mut self, labels: Pairs<'_>, histogram: &Histogram) {
        let per_unit = histogram.buckets.per_unit as f64;
        let mut total = 0;
        for (at, count) in histogram.counts.iter().enumerate() {
            total += count.load(Relaxed);
            match histogram.buckets.bounds.get(at) {
                Some(bound) => {
                    let bound = (*bound as f64 / per_unit).to_string();
                    self.line("_bucket", labels, Some(&bound), total);
                }
                None => self.line("_bucket", labels, Some("+Inf"), total),
            }
        }
        self.line("_sum", labels, None, histogram.sum.load(Relaxed) as f64 / per_unit);
        self.line("_count", labels, None, total);
    }

    /// The text.
    pub fn into_string(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: Pairs<'_>, bound: Option<&str>, value: impl std::fmt::Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut open = '{';
        for (name, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{open}{name}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buckets;

    static TIMES: Buckets = Buckets {
        bounds: &[500, 1_000_000],
        per_unit: 1_000_000,
    };

    #[test]
    fn metrics_are_written_as_prometheus_reads_them() {
        let mut text = Text::default();
        let counter = Counter::default();
        counter.add(3);
        text.counter("a_total", "Things.", &counter);
        text.metric("b", Kind::Gauge, "Sizes.");
        text.sample(&[("name", "a\"b\\c\nd"), ("kind", "x")], 1.5);
        let histogram = Histogram::new(&TIMES);
        [500, 501, 2_500_000]
            .into_iter()
            .for_each(|value| histogram.observe(value));
        text.metric("c_seconds", Kind::Histogram, "Times.");
        text.histogram(&[("of", "x")], &histogram);
        let expected = "\
# HELP a_total Things.
# TYPE a_total counter
a_total 3
# HELP b Sizes.
# TYPE b gauge
b{name=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 1.5
# HELP c_seconds Times.
# TYPE c_seconds histogram
c_seconds_bucket{of=\"x\",le=\"0.0005\"} 1
c_seconds_bucket{of=\"x\",le=\"1\"} 2
c_seconds_bucket{of=\"x\",le=\"+Inf\"} 3
c_seconds_sum{of=\"x\"} 2.501001
c_seconds_count{of=\"x\"} 3
";
        assert_eq!(text.into_string(), expected);
    }
}
