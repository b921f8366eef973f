//! Charts over time as SVG, each with a table of the same numbers.
//!
//! What must stay true: a chart shows exactly the numbers of its table. Series differ by shape and word, not by colour only. Texts are
//! HTML beside the picture, so the picture may have any width.

use super::parts::duration;
use crate::time::Iso;
use fermata_runtime::stats::Span;
use fermata_store::stats::{RunCounts, Stats, StatsPart, start_of};
use maud::{Markup, html};
use std::fmt::Write;

/// The height of a picture. Its width is the number of parts.
const HEIGHT: f64 = 100.0;

/// A series: its class, its word, and its number in a part, if there is one.
type Series = (&'static str, &'static str, fn(&StatsPart) -> Option<u64>);

/// How the numbers are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Bars on top of each other.
    Bars,
    /// Lines, level within a part.
    Lines,
}

/// A chart: its title, its series, and a number for people.
pub(super) struct Chart {
    title: &'static str,
    shape: Shape,
    series: &'static [Series],
    text: fn(u64) -> String,
}

pub(super) const THROUGHPUT: Chart = Chart {
    title: "Runs that ended",
    shape: Shape::Bars,
    series: &[
        ("c-succeeded", "succeeded", |part| Some(part.counts.succeeded)),
        ("c-failed", "failed", |part| Some(part.counts.failed)),
        ("c-cancelled", "cancelled", |part| Some(part.counts.cancelled)),
    ],
    text: count,
};

pub(super) const STARTS: Chart = Chart {
    title: "Runs that started",
    shape: Shape::Bars,
    series: &[("c-started", "started", |part| Some(part.counts.started))],
    text: count,
};

pub(super) const LATENCY: Chart = Chart {
    title: "Duration",
    shape: Shape::Lines,
    series: &[
        ("c-p95", "p95", |part| part.counts.quantile(0.95)),
        ("c-p50", "p50", |part| part.counts.quantile(0.5)),
    ],
    text: estimate,
};

pub(super) const QUEUE: Chart = Chart {
    title: "Runs that waited for a runner",
    shape: Shape::Bars,
    series: &[("c-queue", "waiting", |part| Some(part.waiting))],
    text: count,
};

fn count(count: u64) -> String {
    count.to_string()
}

/// A duration in milliseconds that was estimated from a histogram.
pub(super) fn estimate(millis: u64) -> String {
    format!("≈ {}", duration(millis.saturating_mul(1000)))
}

/// The success rate of counts, such as `98.3 %`. It is 100 % only if nothing failed.
pub(super) fn success_rate(counts: &RunCounts) -> Option<String> {
    let rate = counts.success_rate()?;
    Some(match (rate * 1000.0).floor() / 10.0 {
        whole if whole.fract() == 0.0 => format!("{whole:.0} %"),
        part => format!("{part:.1} %"),
    })
}

impl Chart {
    pub fn drawn(&self, stats: &Stats, span: Span) -> Markup {
        let step = i64::from(span.step.max(1));
        let count = (span.until - span.from + step - 1) / step;
        let parts: Vec<&StatsPart> = stats.series.iter().collect();
        let top = parts.iter().map(|part| self.height(part)).max().unwrap_or(0);
        let label = match top {
            0 => format!("{}: nothing in this time", self.title),
            top => format!("{}: at most {} in one part", self.title, (self.text)(top)),
        };
        html! {
            figure.chart {
                figcaption {
                    b { (self.title) }
                    span.legend { @for (class, word, _) in self.series { i.(class) {} (word) } }
                }
                div.plot {
                    span.top-number { (if top == 0 { String::new() } else { (self.text)(top) }) }
                    svg viewBox=(format!("0 0 {count} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                        @match self.shape {
                            Shape::Bars => (self.bars(&parts, span, top)),
                            Shape::Lines => (self.lines(&parts, span, top)),
                        }
                    }
                }
                div.ends { span { (exact_minute(span.from)) } span { "now" } }
                details {
                    summary { (self.title) " as a table" }
                    @if parts.is_empty() { p.muted { "Nothing in this time." } }
                    @else { (self.table(&parts)) }
                }
            }
        }
    }

    /// What the highest point of a part stands for.
    fn height(&self, part: &StatsPart) -> u64 {
        let numbers = self.series.iter().filter_map(|(_, _, of)| of(part));
        match self.shape {
            Shape::Bars => numbers.sum(),
            Shape::Lines => numbers.max().unwrap_or(0),
        }
    }

    fn bars(&self, parts: &[&StatsPart], span: Span, top: u64) -> Markup {
        let mut bars = Vec::new();
        for part in parts {
            let mut below = 0.0;
            for (class, _, of) in self.series {
                let height = scaled(of(part).unwrap_or(0), top);
                if height > 0.0 {
                    bars.push((*class, place(part, span) + 0.1, HEIGHT - below - height, height, part));
                }
                below += height;
            }
        }
        html! {
            @for (class, x, y, height, part) in bars {
                rect.(class) x=(format!("{x:.2}")) width="0.8" y=(format!("{y:.2}")) height=(format!("{height:.2}")) {
                    title { (self.says(part)) }
                }
            }
        }
    }

    fn lines(&self, parts: &[&StatsPart], span: Span, top: u64) -> Markup {
        let path = |of: fn(&StatsPart) -> Option<u64>| {
            let (mut path, mut end) = (String::new(), f64::NAN);
            for part in parts {
                let Some(number) = of(part) else { continue };
                let (x, y) = (place(part, span), HEIGHT - scaled(number, top));
                let join = if x == end { 'L' } else { 'M' };
                end = x + 1.0;
                let _ = write!(path, "{join}{x:.2} {y:.2}H{end:.2}");
            }
            path
        };
        html! { @for (class, _, of) in self.series { path.line.(class) d=(path(*of)) {} } }
    }

    /// The numbers of a part in a sentence.
    fn says(&self, part: &StatsPart) -> String {
        let numbers = self
            .series
            .iter()
            .filter_map(|(_, word, of)| Some(format!("{} {word}", (self.text)(of(part)?))));
        let numbers: Vec<String> = numbers.collect();
        format!("{}: {}", exact_minute(part.minute), numbers.join(", "))
    }

    fn table(&self, parts: &[&StatsPart]) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-label=(format!("{}, table", self.title)) {
                table.list {
                    thead { tr { th { "From" } @for (_, word, _) in self.series { th.num { (word) } } } }
                    tbody {
                        @for part in parts.iter().rev() {
                            tr {
                                td { (exact_minute(part.minute)) }
                                @for (_, _, of) in self.series {
                                    td.num { @match of(part) { Some(number) => ((self.text)(number)), None => "–" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The time at which a minute begins.
fn exact_minute(minute: i64) -> String {
    let text = Iso(start_of(minute)).to_string().replace('T', " ");
    text.get(..16).unwrap_or(&text).to_owned()
}

/// The place of a part, from the left.
fn place(part: &StatsPart, span: Span) -> f64 {
    ((part.minute - span.from) / i64::from(span.step.max(1))) as f64
}

/// The height of a number. A number that is not zero can be seen.
fn scaled(number: u64, top: u64) -> f64 {
    match (number, top) {
        (0, _) | (_, 0) => 0.0,
        (number, top) => (number as f64 / top as f64 * HEIGHT).max(1.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_core::Status;
    use std::time::Duration;

    fn stats() -> (Stats, Span) {
        let part = |minute, succeeded, failed, waiting| {
            let mut counts = RunCounts::default();
            for (status, count) in [(Status::Succeeded, succeeded), (Status::Failed, failed)] {
                (0..count).for_each(|_| counts.end(status, Duration::from_millis(20)));
            }
            StatsPart {
                minute,
                counts,
                waiting,
            }
        };
        let stats = Stats {
            series: vec![part(100, 3, 1, 0), part(115, 0, 0, 7), part(130, 2, 0, 0)],
            ..Stats::default()
        };
        let span = Span {
            from: 100,
            until: 190,
            step: 15,
        };
        (stats, span)
    }

    #[test]
    fn a_chart_and_its_table_show_the_same_numbers() {
        let (stats, span) = stats();
        let text = THROUGHPUT.drawn(&stats, span).into_string();
        assert!(text.contains(r#"viewBox="0 0 6 100""#), "{text}");
        // Four runs are the whole height: three quarters succeeded, one quarter failed, above them.
        assert!(
            text.contains(r#"x="0.10" width="0.8" y="25.00" height="75.00""#),
            "{text}"
        );
        assert!(
            text.contains(r#"x="0.10" width="0.8" y="0.00" height="25.00""#),
            "{text}"
        );
        assert!(text.contains("3 succeeded, 1 failed, 0 cancelled"), "{text}");
        assert_eq!(text.matches("<rect").count(), 3, "{text}");
        assert_eq!(text.matches("<tr>").count(), 4, "{text}");
        let text = QUEUE.drawn(&stats, span).into_string();
        assert!(
            text.contains(r#"x="1.10" width="0.8" y="0.00""#) && text.contains("at most 7"),
            "{text}"
        );
    }

    #[test]
    fn lines_have_gaps_where_nothing_ended() {
        let (stats, span) = stats();
        let text = LATENCY.drawn(&stats, span).into_string();
        assert_eq!(text.matches("<path").count(), 2, "{text}");
        let path = text.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        let empty = LATENCY.drawn(&Stats::default(), span).into_string();
        assert!(
            empty.contains("nothing in this time") && !empty.contains("NaN"),
            "{empty}"
        );
    }

    #[test]
    fn a_rate_is_100_percent_only_if_nothing_failed() {
        let counts = |succeeded, failed| RunCounts {
            succeeded,
            failed,
            ..RunCounts::default()
        };
        assert_eq!(success_rate(&counts(0, 0)), None);
        for (succeeded, failed, text) in [
            (3, 0, "100 %"),
            (99_999, 1, "99.9 %"),
            (3, 1, "75 %"),
            (0, 1, "0 %"),
            (2, 1, "66.6 %"),
        ] {
            assert_eq!(success_rate(&counts(succeeded, failed)).as_deref(), Some(text));
        }
    }
}
