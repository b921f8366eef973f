//! The paths of the scope that a template reads.
//!
//! What must stay true: as for conditions, every value that rendering can read is at or below a
//! listed path. Loop variables are not paths; the list of a loop is an open read.

use super::ast::{Block, Expr, Kind, Step};
use crate::data::{ReadPath, Segment, merge_reads};

pub(super) fn reads(blocks: &[Block]) -> Vec<ReadPath> {
    let mut collector = Collector::default();
    collector.blocks(blocks);
    merge_reads(collector.out)
}

#[derive(Default)]
struct Collector<'t> {
    out: Vec<ReadPath>,
    /// Loop variables in scope.
    locals: Vec<&'t str>,
}

impl<'t> Collector<'t> {
    fn blocks(&mut self, blocks: &'t [Block]) {
        for block in blocks {
            match block {
                Block::Text(_) | Block::Secret(_) => {}
                Block::Output(expression) => self.expr(expression, false),
                Block::If { branches, otherwise } => {
                    for (test, body) in branches {
                        self.expr(test, false);
                        self.blocks(body);
                    }
                    self.blocks(otherwise);
                }
                Block::For { name, list, body } => {
                    self.expr(list, true);
                    self.locals.push(name);
                    self.blocks(body);
                    self.locals.pop();
                }
            }
        }
    }

    fn expr(&mut self, expression: &'t Expr, below: bool) {
        match &expression.kind {
            Kind::Literal(_) => {}
            Kind::Plain(segments) => self.out.push(ReadPath {
                segments: segments.clone(),
                open: below,
            }),
            Kind::Path(name, steps) => self.path(name, steps, below),
            Kind::Steps(base, steps) => {
                self.expr(base, true);
                self.computed(steps);
            }
            Kind::Coalesce(operands) => operands.iter().for_each(|each| self.expr(each, below)),
            Kind::And(operands) | Kind::Or(operands) => {
                operands.iter().for_each(|each| self.expr(each, false));
            }
            Kind::Not(operand) => self.expr(operand, false),
            Kind::Compare(_, sides) => {
                self.expr(&sides.0, false);
                self.expr(&sides.1, false);
            }
            Kind::Call(_, arguments) => arguments.iter().for_each(|each| self.expr(each, true)),
        }
    }

    fn path(&mut self, name: &str, steps: &'t [Step], below: bool) {
        self.computed(steps);
        if self.locals.contains(&name) {
            return;
        }
        let mut segments = vec![Segment::Key(name.to_owned())];
        let mut open = below;
        for step in steps {
            match step {
                Step::Key(key) => segments.push(Segment::Key(key.clone())),
                Step::Index(index) => segments.push(Segment::Index(*index)),
                Step::Computed(_) => {
                    open = true;
                    break;
                }
            }
        }
        self.out.push(ReadPath { segments, open });
    }

    fn computed(&mut self, steps: &'t [Step]) {
        for step in steps {
            if let Step::Computed(key) = step {
                self.expr(key, false);
            }
        }
    }
}
