//! The timeline of a run: what each node did when. Times in which nothing ran are shortened.

mod scale;

use super::parts::{cut, duration, encoded};
use crate::time::Iso;
use fermata_core::Timestamp;
use fermata_runtime::{Doing, NodeProgress, Period, Progress};
use maud::{Markup, html};
use scale::Scale;

/// The most rows.
const MAX_ROWS: usize = 300;
/// The most bars in all rows, roughly. Periods that would be narrower than their share of it are drawn as one bar.
const MAX_BARS: f64 = 4000.0;

/// A bar: one period, or several that are too short to be seen.
struct Bar {
    what: Doing,
    from: Timestamp,
    to: Timestamp,
    goes_on: bool,
    /// The first and the last attempt.
    attempts: (u32, u32),
}

fn bars(periods: &[Period], scale: &Scale, end: Timestamp, narrowest: f64) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for period in periods {
        let to = period.to.unwrap_or(end).max(period.from);
        let goes_on = period.to.is_none();
        let near = |bar: &&mut Bar| scale.at(to) - scale.at(bar.from) < narrowest;
        if let Some(bar) = bars.last_mut().filter(near) {
            (bar.to, bar.goes_on, bar.attempts.1) = (to, goes_on, period.attempt);
            if period.what == Doing::Fails || bar.what == Doing::Queues {
                bar.what = period.what;
            }
            continue;
        }
        bars.push(Bar {
            what: period.what,
            from: period.from,
            to,
            goes_on,
            attempts: (period.attempt, period.attempt),
        });
    }
    bars
}

fn percent(part: f64) -> String {
    format!("{:.2}%", part * 100.0)
}

fn class(what: Doing) -> &'static str {
    match what {
        Doing::Queues => "p-queued",
        Doing::Runs => "p-runs",
        Doing::Fails => "p-fails",
        Doing::BacksOff => "p-backs-off",
        Doing::Sleeps => "p-sleeps",
        Doing::Waits => "p-waits",
    }
}

fn word(what: Doing) -> &'static str {
    match what {
        Doing::Queues => "waited for a slot",
        Doing::Runs => "ran",
        Doing::Fails => "failed",
        Doing::BacksOff => "waited for the next attempt",
        Doing::Sleeps => "slept",
        Doing::Waits => "waited for an answer",
    }
}

/// The timeline from the creation of the run to its end or to now.
pub(super) fn panel(progress: &Progress, created: Timestamp, started: Option<Timestamp>, end: Timestamp) -> Markup {
    let mut rows: Vec<(&str, &str, &NodeProgress)> = progress
        .plan
        .nodes
        .iter()
        .zip(&progress.nodes)
        .filter(|(_, node)| !node.periods.is_empty())
        .map(|(node, state)| {
            (
                node.id.as_str(),
                node.title.as_deref().unwrap_or(node.id.as_str()),
                state,
            )
        })
        .collect();
    rows.sort_by_key(|(.., state)| state.periods[0].from);
    let periods = || rows.iter().flat_map(|(.., state)| &state.periods);
    let is_busy = |period: &&Period| matches!(period.what, Doing::Runs | Doing::Fails);
    let busy = periods()
        .filter(is_busy)
        .map(|period| (period.from, period.to.unwrap_or(end)));
    let scale = Scale::new(created, end, busy);
    let more = rows.len().saturating_sub(MAX_ROWS);
    let narrowest = rows.len().min(MAX_ROWS) as f64 / MAX_BARS;
    html! {
        section.card.timeline-card aria-label="Timeline" {
            header {
                h2 { "Timeline" }
                span.grow {}
                (legend())
            }
            div #timeline data-live {
                @if rows.is_empty() { p.muted.pad { "No node has started yet." } }
                @else {
                    div.axis {
                        span {}
                        div.scale {
                            svg.track aria-hidden="true" {
                                @for piece in scale.pieces.iter().filter(|piece| piece.is_short) {
                                    text.gap x=(percent((piece.begin + piece.end) / 2.0)) y="13" text-anchor="middle" {
                                        "⋯ " (duration((piece.to - piece.from) as u64))
                                    }
                                }
                            }
                        }
                        span.num { (duration(end.micros_since(created))) }
                    }
                    @if let Some(started) = started.filter(|started| started.micros_since(created) > 1000) {
                        (queued(created, started, &scale))
                    }
                    @for (id, name, state) in rows.iter().take(MAX_ROWS) { (row(id, name, &state.periods, &scale, end, narrowest)) }
                    @if more > 0 { p.muted.pad { "and " (more) " more nodes" } }
                }
            }
        }
    }
}

/// What the bars mean. Each kind has a colour and a pattern; the patterns are part of the legend.
fn legend() -> Markup {
    let kinds = [
        ("p-queued", "queued"),
        ("p-runs on", "running"),
        ("p-runs", "ran"),
        ("p-fails", "failed"),
        ("p-backs-off", "retry delay"),
        ("p-waits", "waiting"),
        ("p-sleeps", "sleeping"),
    ];
    html! {
        ul.legend.muted aria-label="Legend" {
            @for (class, name) in kinds {
                li { svg width="14" height="10" aria-hidden="true" { rect.bar.(class) x="1" y="1" width="12" height="8" rx="2" {} } (name) }
            }
        }
        svg.patterns width="0" height="0" aria-hidden="true" {
            defs {
                @for (id, angle) in [("stripes-up", "45"), ("stripes-down", "-45")] {
                    pattern id=(id) width="4" height="4" patternUnits="userSpaceOnUse" patternTransform=(format!("rotate({angle})")) {
                        rect.(id) width="2" height="4" {}
                    }
                }
                pattern #dots width="4" height="4" patternUnits="userSpaceOnUse" { circle.dots cx="2" cy="2" r="1.2" {} }
            }
        }
    }
}

/// The row for the time before the run was claimed.
fn queued(created: Timestamp, started: Timestamp, scale: &Scale) -> Markup {
    let (left, right, time) = (
        scale.at(created),
        scale.at(started),
        duration(started.micros_since(created)),
    );
    html! {
        div.row {
            span.name.muted { "queued" }
            svg.track role="img" aria-label=(format!("queued: {time}")) {
                (shortened(scale))
                rect.bar.p-queued x=(percent(left)) y="5" rx="2" height="12" width=(percent((right - left).max(0.004))) {
                    title { "waited for a runner for " (time) ", from " (Iso(created)) }
                }
            }
            span.num { (time) }
        }
    }
}

fn shortened(scale: &Scale) -> Markup {
    html! {
        @for piece in scale.pieces.iter().filter(|piece| piece.is_short) {
            rect.short x=(percent(piece.begin)) width=(percent(piece.end - piece.begin)) height="100%" {}
        }
    }
}

fn row(id: &str, name: &str, periods: &[Period], scale: &Scale, end: Timestamp, narrowest: f64) -> Markup {
    let first = periods.first().map_or(end, |period| period.from);
    let last = periods.last().map_or(end, |period| period.to.unwrap_or(end));
    html! {
        div.row {
            a.name href=(format!("?node={}", encoded(id))) data-swap title=(name) { (cut(name, 40)) }
            svg.track role="img" aria-label=(format!("{name}: {}", duration(last.micros_since(first)))) {
                (shortened(scale))
                @for bar in bars(periods, scale, end, narrowest) {
                    @let (left, right) = (scale.at(bar.from), scale.at(bar.to));
                    rect.bar.(class(bar.what)).on[bar.goes_on] x=(percent(left)) y="5" rx="2" height="12"
                        width=(percent((right - left).max(0.004))) {
                        title {
                            @match bar.attempts {
                                (first, last) if first == last => { "attempt " (first) " " (word(bar.what)) },
                                (first, last) => { "attempts " (first) " to " (last) },
                            }
                            " for " (duration(bar.to.micros_since(bar.from))) ", from " (Iso(bar.from))
                        }
                    }
                }
            }
            span.num { (duration(last.micros_since(first))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn scale(end: i64, busy: &[(i64, i64)]) -> Scale {
        let busy = busy
            .iter()
            .map(|(from, to)| (Timestamp(from * SECOND), Timestamp(to * SECOND)));
        Scale::new(Timestamp(0), Timestamp(end * SECOND), busy)
    }

    #[test]
    fn many_short_periods_are_few_bars() {
        let scale = scale(1000, &[(0, 1000)]);
        let period = |n: i64| Period {
            attempt: n as u32 / 2 + 1,
            what: if n % 2 == 0 { Doing::Fails } else { Doing::BacksOff },
            from: Timestamp(n * SECOND / 2),
            to: Some(Timestamp((n + 1) * SECOND / 2)),
        };
        let periods: Vec<Period> = (0..2000).map(period).collect();
        let end = Timestamp(1000 * SECOND);
        let few = bars(&periods, &scale, end, 20.0 / MAX_BARS);
        assert!((100..=400).contains(&few.len()), "{}", few.len());
        assert_eq!((few[0].what, few[0].attempts.0), (Doing::Fails, 1));
        assert!(few.windows(2).all(|pair| pair[0].to == pair[1].from));
        assert_eq!(few.last().map(|bar| (bar.to, bar.attempts.1)), Some((end, 1000)));
        // A short time in the queue is not named: the bar is about the attempt.
        let mut queued = periods[..2].to_vec();
        (queued[0].what, queued[1].what) = (Doing::Queues, Doing::Runs);
        let one = bars(&queued, &scale, end, 0.1);
        assert_eq!((one.len(), one[0].what), (1, Doing::Runs));
        // Few long ones stay as they are.
        assert_eq!(bars(&periods[..3], &scale, end, 0.0).len(), 3);
    }
}
