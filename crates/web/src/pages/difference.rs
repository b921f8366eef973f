//! The difference of two texts, line by line: Myers' greedy algorithm, with a limit.
//!
//! What must stay true: the lines that are kept and removed are the old text, those that are kept and added are the new one. Texts
//! that differ in more than [`MAX_EDITS`] lines are shown as replaced from the first difference to the last.

/// The most lines that are removed or added before the search ends. It needs memory for the square of this.
const MAX_EDITS: usize = 1000;

/// What happened to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    Kept,
    Removed,
    Added,
}

/// A line with its numbers in the old and in the new text, from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub edit: Edit,
    pub old: Option<usize>,
    pub new: Option<usize>,
    pub text: &'a str,
}

/// All lines of both texts, removed ones before added ones.
pub(super) fn lines<'a>(old: &'a str, new: &'a str) -> Vec<Line<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let before = old.iter().zip(&new).take_while(same).count();
    let after = old[before..]
        .iter()
        .rev()
        .zip(new[before..].iter().rev())
        .take_while(same)
        .count();
    let (middle_old, middle_new) = (&old[before..old.len() - after], &new[before..new.len() - after]);
    let edits = edits(middle_old, middle_new).unwrap_or_else(|| {
        let removed = std::iter::repeat_n(Edit::Removed, middle_old.len());
        removed
            .chain(std::iter::repeat_n(Edit::Added, middle_new.len()))
            .collect()
    });
    let kept = |count| std::iter::repeat_n(Edit::Kept, count);
    let (mut at_old, mut at_new) = (0, 0);
    let all = kept(before).chain(edits).chain(kept(after));
    all.map(|edit| {
        let (is_old, is_new) = (edit != Edit::Added, edit != Edit::Removed);
        let text = if is_old { old[at_old] } else { new[at_new] };
        at_old += usize::from(is_old);
        at_new += usize::from(is_new);
        Line {
            edit,
            old: is_old.then_some(at_old),
            new: is_new.then_some(at_new),
            text,
        }
    })
    .collect()
}

/// The shortest list of edits; `None` if it is longer than [`MAX_EDITS`].
fn edits(old: &[&str], new: &[&str]) -> Option<Vec<Edit>> {
    let (n, m) = (old.len() as isize, new.len() as isize);
    // The farthest place in `old` on each diagonal (place in old minus place in new), and its state before each round.
    let most = MAX_EDITS.min(old.len() + new.len()) as isize;
    let at = |diagonal: isize| (diagonal + most + 1) as usize;
    let mut farthest = vec![0_isize; at(most + 1) + 1];
    let mut rounds: Vec<Vec<isize>> = Vec::new();
    for round in 0..=most {
        rounds.push(farthest[at(-round - 1)..=at(round + 1)].to_vec());
        for diagonal in (-round..=round).step_by(2) {
            let goes_down = is_added(diagonal, round, |diagonal| farthest[at(diagonal)]);
            let mut x = match goes_down {
                true => farthest[at(diagonal + 1)],
                false => farthest[at(diagonal - 1)] + 1,
            };
            while x < n && x - diagonal < m && old[x as usize] == new[(x - diagonal) as usize] {
                x += 1;
            }
            farthest[at(diagonal)] = x;
            if x >= n && x - diagonal >= m {
                return Some(back(&rounds, n, m));
            }
        }
    }
    None
}

/// Whether the farthest path to a diagonal ends with an added line: it comes from the diagonal above.
fn is_added(diagonal: isize, round: isize, farthest: impl Fn(isize) -> isize) -> bool {
    diagonal == -round || (diagonal != round && farthest(diagonal - 1) < farthest(diagonal + 1))
}

/// The edits of the path that ends at `(n, m)`, from the states before each round.
fn back(rounds: &[Vec<isize>], n: isize, m: isize) -> Vec<Edit> {
    let (mut x, mut y) = (n, m);
    let mut edits = Vec::new();
    for (round, state) in rounds.iter().enumerate().rev() {
        let round = round as isize;
        let farthest = |diagonal: isize| state[(diagonal + round + 1) as usize];
        let diagonal = x - y;
        let goes_down = is_added(diagonal, round, farthest);
        let (from_x, from_y) = match (round, goes_down) {
            (0, _) => (0, 0),
            (_, true) => (farthest(diagonal + 1), farthest(diagonal + 1) - diagonal - 1),
            (_, false) => (farthest(diagonal - 1), farthest(diagonal - 1) - diagonal + 1),
        };
        // The kept lines after the edit of this round.
        let start = match (round, goes_down) {
            (0, _) => 0,
            (_, true) => from_x,
            (_, false) => from_x + 1,
        };
        edits.extend(std::iter::repeat_n(Edit::Kept, (x - start) as usize));
        if round > 0 {
            edits.push(if goes_down { Edit::Added } else { Edit::Removed });
        }
        (x, y) = (from_x, from_y);
    }
    edits.reverse();
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> String {
        let sign = |line: &Line<'_>| match line.edit {
            Edit::Kept => format!(" {}", line.text),
            Edit::Removed => format!("-{}", line.text),
            Edit::Added => format!("+{}", line.text),
        };
        let all: Vec<String> = lines(old, new).iter().map(sign).collect();
        all.join(",")
    }

    /// The old and the new text can be read from the difference, with their line numbers.
    fn check(old: &str, new: &str) -> usize {
        let found = lines(old, new);
        for (is_new, text) in [(false, old), (true, new)] {
            let side: Vec<(usize, &str)> = found
                .iter()
                .filter_map(|line| Some((if is_new { line.new } else { line.old }?, line.text)))
                .collect();
            let expected: Vec<(usize, &str)> = (1..).zip(text.lines()).collect();
            assert_eq!(side, expected, "{old:?} {new:?}");
        }
        found.iter().filter(|line| line.edit != Edit::Kept).count()
    }

    #[test]
    fn small_differences_are_as_expected() {
        for (old, new, expected) in [
            ("", "", ""),
            ("", "a", "+a"),
            ("a", "", "-a"),
            ("a\nb\nc", "a\nb\nc\n", " a, b, c"),
            ("a\nb\nc", "a\nx\nc", " a,-b,+x, c"),
            ("a\nb\nc", "b\nc\nd", "-a, b, c,+d"),
            ("a\nb", "b\na", "-a, b,+a"),
            ("a\na\nb", "a\nb", "-a, a, b"),
        ] {
            let found = shown(old, new);
            // Which of two equal lines was removed does not matter.
            if old != "a\na\nb" {
                assert_eq!(found, expected, "{old:?} {new:?}");
            }
            check(old, new);
        }
    }

    #[test]
    fn differences_are_the_shortest() {
        // All pairs of texts of up to five lines of two letters, compared with the longest common subsequence.
        let texts: Vec<Vec<&str>> = (0..6)
            .flat_map(|length| (0..1_u32 << length).map(move |bits| (length, bits)))
            .map(|(length, bits)| {
                (0..length)
                    .map(|at| if bits >> at & 1 == 0 { "a" } else { "b" })
                    .collect()
            })
            .collect();
        for old in &texts {
            for new in &texts {
                let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
                for (i, left) in old.iter().enumerate() {
                    for (j, right) in new.iter().enumerate() {
                        common[i + 1][j + 1] = match left == right {
                            true => common[i][j] + 1,
                            false => common[i][j + 1].max(common[i + 1][j]),
                        };
                    }
                }
                let shortest = old.len() + new.len() - 2 * common[old.len()][new.len()];
                assert_eq!(check(&old.join("\n"), &new.join("\n")), shortest, "{old:?} {new:?}");
            }
        }
    }

    #[test]
    fn large_differences_have_a_limit() {
        let text = |from: usize| {
            (from..from + 20_000)
                .map(|line| format!("line {line}\n"))
                .collect::<String>()
        };
        let (old, new) = (
            format!("first\n{}last", text(0)),
            format!("first\n{}last", text(50_000)),
        );
        assert_eq!(check(&old, &new), 40_000);
        assert_eq!(check(&text(0), &text(300)), 600);
    }
}
