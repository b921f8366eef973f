//! The timeline of a run: what each node did when. Times in which nothing ran are shortened.

use super::parts::{cut, duration, encoded};
use crate::time::Iso;
use fermata_core::Timestamp;
use fermata_runtime::{Doing, NodeProgress, Period, Progress};
use maud::{Markup, html};

/// The most rows.
const MAX_ROWS: usize = 300;
/// An idle time is shortened if it is longer than this part of the rest, and then takes this part of the width.
const IDLE_PART: f64 = 0.3;
const IDLE_WIDTH: f64 = 0.07;
/// The most shortened times; they must leave room for the others.
const MAX_SHORT: usize = 6;

/// Maps times to positions from 0 to 1.
struct Scale {
    /// Where a piece begins and ends, in microseconds since 1970 and as a position.
    pieces: Vec<Piece>,
}

struct Piece {
    from: f64,
    to: f64,
    begin: f64,
    end: f64,
    is_short: bool,
}

impl Scale {
    /// `busy` are the times in which something ran.
    fn new(from: Timestamp, to: Timestamp, busy: impl Iterator<Item = (Timestamp, Timestamp)>) -> Scale {
        let micros = |at: Timestamp| at.0 as f64;
        let (from, to) = (micros(from), micros(to).max(micros(from) + 1.0));
        let mut busy: Vec<(f64, f64)> = busy.map(|(begin, end)| (micros(begin), micros(end))).collect();
        busy.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut idle = Vec::new();
        let mut at = from;
        for (begin, end) in busy.into_iter().chain([(to, to)]) {
            if begin > at {
                idle.push((at, begin.min(to)));
            }
            at = at.max(end);
        }
        idle.sort_by(|left, right| (right.1 - right.0).total_cmp(&(left.1 - left.0)));
        let (mut rest, mut short) = (to - from, Vec::new());
        for (begin, end) in idle.into_iter().take(MAX_SHORT) {
            let length = end - begin;
            // The rest is what remains if it is shortened too.
            if length > IDLE_PART * (rest - length).max(0.0) && length > 1000.0 {
                rest -= length;
                short.push((begin, end));
            }
        }
        short.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut widths: Vec<(f64, f64, bool)> = Vec::new();
        let mut at = from;
        for (begin, end) in short {
            widths.push((at, begin, false));
            widths.push((begin, end, true));
            at = end;
        }
        widths.push((at, to, false));
        let shorts = widths.iter().filter(|(.., is_short)| *is_short).count() as f64;
        let room = if rest > 0.0 { 1.0 - shorts * IDLE_WIDTH } else { 0.0 };
        let short_width = if rest > 0.0 { IDLE_WIDTH } else { 1.0 / shorts.max(1.0) };
        let mut position = 0.0;
        let pieces = widths.into_iter().map(|(from, to, is_short)| {
            let width = match is_short {
                true => short_width,
                false => (to - from) / rest.max(1.0) * room,
            };
            let begin = position;
            position += width;
            Piece {
                from,
                to,
                begin,
                end: position,
                is_short,
            }
        });
        Scale {
            pieces: pieces.collect(),
        }
    }

    fn at(&self, time: Timestamp) -> f64 {
        let time = time.0 as f64;
        let piece = self.pieces.iter().find(|piece| time <= piece.to).or(self.pieces.last());
        piece.map_or(0.0, |piece| {
            let length = (piece.to - piece.from).max(1.0);
            let part = ((time - piece.from) / length).clamp(0.0, 1.0);
            piece.begin + part * (piece.end - piece.begin)
        })
    }
}

fn percent(part: f64) -> String {
    format!("{:.2}%", part * 100.0)
}

fn class(what: Doing) -> &'static str {
    match what {
        Doing::Runs => "p-runs",
        Doing::Fails => "p-fails",
        Doing::BacksOff => "p-backs-off",
        Doing::Sleeps => "p-sleeps",
        Doing::Waits => "p-waits",
    }
}

fn word(what: Doing) -> &'static str {
    match what {
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
    html! {
        section.card.timeline-card aria-label="Timeline" {
            header {
                h2 { "Timeline" }
                span.grow {}
                span.legend.muted {
                    i.p-runs {} "ran" i.p-fails {} "failed" i.p-backs-off {} "retry delay" i.p-waits {} "waiting" i.p-sleeps {} "sleeping"
                }
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
                        (row("", "queued", &[Period { attempt: 0, what: Doing::BacksOff, from: created, to: Some(started) }], &scale, end))
                    }
                    @for (id, name, state) in rows.iter().take(MAX_ROWS) { (row(id, name, &state.periods, &scale, end)) }
                    @if more > 0 { p.muted.pad { "and " (more) " more nodes" } }
                }
            }
        }
    }
}

fn row(id: &str, name: &str, periods: &[Period], scale: &Scale, end: Timestamp) -> Markup {
    let first = periods.first().map_or(end, |period| period.from);
    let last = periods.last().map_or(end, |period| period.to.unwrap_or(end));
    html! {
        div.row {
            @if id.is_empty() { span.name.muted { (name) } }
            @else { a.name href=(format!("?node={}", encoded(id))) data-swap title=(name) { (cut(name, 40)) } }
            svg.track role="img" aria-label=(format!("{name}: {}", duration(last.micros_since(first)))) {
                @for piece in scale.pieces.iter().filter(|piece| piece.is_short) {
                    rect.short x=(percent(piece.begin)) width=(percent(piece.end - piece.begin)) height="100%" {}
                }
                @for period in periods {
                    @let (from, to) = (period.from, period.to.unwrap_or(end).max(period.from));
                    @let (left, right) = (scale.at(from), scale.at(to));
                    rect.bar.(class(period.what)).on[period.to.is_none()] x=(percent(left)) y="5" rx="2" height="12"
                        width=(percent((right - left).max(0.004))) {
                        title {
                            @if period.attempt > 0 { "attempt " (period.attempt) " " (word(period.what)) } @else { "waited for a runner" }
                            " for " (duration(to.micros_since(from))) ", from " (Iso(from))
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
    fn idle_times_are_shortened_and_order_is_kept() {
        let day = 86_400;
        let scale = scale(13 * day + 4, &[(0, 2), (13 * day + 2, 13 * day + 4)]);
        let at = |seconds: i64| scale.at(Timestamp(seconds * SECOND));
        assert!(at(2) > 0.4 && at(13 * day + 2) < 0.6, "{} {}", at(2), at(13 * day + 2));
        let times = [0, 1, 2, day, 13 * day + 2, 13 * day + 3, 13 * day + 4];
        assert!(times.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        assert!((at(13 * day + 4) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn short_pauses_and_empty_runs_are_linear() {
        let busy = scale(10, &[(0, 4), (5, 10)]);
        assert!((busy.at(Timestamp(5 * SECOND)) - 0.5).abs() < 1e-9);
        let idle = scale(10, &[]);
        assert!(idle.at(Timestamp(10 * SECOND)) <= 1.0);
        assert!(scale(0, &[]).at(Timestamp(0)) <= 1.0);
    }
}
