//! The scale of a timeline: times in which nothing ran are shortened.

use fermata_core::Timestamp;

/// An idle time is shortened if it is longer than this part of the rest, and then takes this part of the width.
const IDLE_PART: f64 = 0.3;
const IDLE_WIDTH: f64 = 0.07;
/// The most shortened times; they must leave room for the others.
const MAX_SHORT: usize = 6;

/// Maps times to positions from 0 to 1.
pub(super) struct Scale {
    /// Where a piece begins and ends, in microseconds since 1970 and as a position.
    pub pieces: Vec<Piece>,
}

pub(super) struct Piece {
    pub from: f64,
    pub to: f64,
    pub begin: f64,
    pub end: f64,
    pub is_short: bool,
}

impl Scale {
    /// `busy` are the times in which something ran.
    pub fn new(from: Timestamp, to: Timestamp, busy: impl Iterator<Item = (Timestamp, Timestamp)>) -> Scale {
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

    pub fn at(&self, time: Timestamp) -> f64 {
        let time = time.0 as f64;
        let piece = self.pieces.iter().find(|piece| time <= piece.to).or(self.pieces.last());
        piece.map_or(0.0, |piece| {
            let length = (piece.to - piece.from).max(1.0);
            let part = ((time - piece.from) / length).clamp(0.0, 1.0);
            piece.begin + part * (piece.end - piece.begin)
        })
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
