//! How a transfer begins: what the marks of two databases allow, and marking them.
//!
//! What must stay true: a database is marked before it is asked who else uses it, so that nobody new can come in between;
//! and a target that has anything of its own is never written to.

use super::{
    Result, TransferError,
    end::{Arrival, End},
    mark::{Done, Mark},
    tables::TABLES,
};
use uuid::Uuid;

/// How a transfer begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Into an empty target, whose mark says nothing that counts.
    Anew,
    /// Where another one was interrupted.
    At(Uuid, Done),
}

/// Why it does not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// What the source says about another transfer.
    Source(Mark),
    /// What the target says about another transfer.
    Target(Mark),
    /// Something is there of which it was not said to go on with it.
    Interrupted,
    /// What was moved may not be true any more.
    Changed,
    /// It was to be resumed.
    Nothing,
}

impl Reason {
    pub(super) fn explain(self, source: &dyn End, target: &str) -> TransferError {
        let from = source.place();
        TransferError::Refused(match self {
            Reason::Source(mark) => return mark.refuse(from).into(),
            Reason::Target(mark) => return mark.refuse(target).into(),
            Reason::Interrupted => format!(
                "a transfer into {target} was interrupted; go on with it with --resume, or use another, empty database"
            ),
            Reason::Changed => format!(
                "the transfer into {target} cannot be resumed from {from}: that is another database, or was taken back and \
                 may have changed since. Begin again with another, empty database"
            ),
            Reason::Nothing => {
                format!("there is no transfer from {from} to {target} to resume; begin it without --resume")
            }
        })
    }
}

/// What two marks mean for a transfer (the table in `mark.rs`).
pub(super) fn decide(resume: bool, source: Option<Mark>, target: Option<Mark>) -> Result<Start, Reason> {
    let leaves = match &source {
        Some(Mark::Leaving { transfer, .. } | Mark::Moved { transfer, .. }) => Some(*transfer),
        Some(Mark::Arriving { .. }) | None => None,
    };
    match (target, source) {
        (_, Some(arriving @ Mark::Arriving { .. })) => Err(Reason::Source(arriving)),
        (Some(leaving @ (Mark::Leaving { .. } | Mark::Moved { .. })), _) => Err(Reason::Target(leaving)),
        (Some(Mark::Arriving { done: Some(_), .. }), _) if !resume => Err(Reason::Interrupted),
        (
            Some(Mark::Arriving {
                transfer,
                done: Some(done),
                ..
            }),
            _,
        ) => match leaves == Some(transfer) {
            true => Ok(Start::At(transfer, done)),
            false => Err(Reason::Changed),
        },
        // It ended before anything was moved.
        (Some(Mark::Arriving { transfer, .. }), Some(_)) if leaves == Some(transfer) => Ok(Start::Anew),
        (_, Some(elsewhere)) => Err(Reason::Source(elsewhere)),
        (Some(Mark::Arriving { .. }), None) => Ok(Start::Anew),
        (None, None) if resume => Err(Reason::Nothing),
        (None, None) => Ok(Start::Anew),
    }
}

/// Whether these two can be the ends of a transfer, and how it begins.
pub(super) async fn check(resume: bool, source: &dyn End, target: &dyn End) -> Result<Start> {
    let place = target.place();
    if source.place() == place {
        return Err(TransferError::Refused(format!("{place} is the source and the target")));
    }
    let start = decide(resume, source.mark().await?, target.mark().await?);
    let start = start.map_err(|reason| reason.explain(source, place))?;
    if start == Start::Anew {
        for table in TABLES {
            if target.has_rows(table).await? {
                return Err(TransferError::Refused(format!(
                    "{place} is not empty: {} has rows. Use another, empty database",
                    table.name
                )));
            }
        }
    }
    Ok(start)
}

/// Marks both databases, the target first: a source that says it leaves has a target to go to.
pub(super) async fn begin(start: Start, source: &mut dyn End, target: &mut dyn End) -> Result<Arrival> {
    let (from, to) = (source.place().to_owned(), target.place().to_owned());
    let resumed = start != Start::Anew;
    let arrival = match start {
        Start::Anew => Arrival {
            transfer: Uuid::now_v7(),
            from,
            done: None,
        },
        Start::At(transfer, done) => Arrival {
            transfer,
            from,
            done: Some(done),
        },
    };
    let (left, reached) = (source.mark().await?, target.mark().await?);
    replace(target, reached.as_ref(), Some(&arrival.mark())).await?;
    let leaving = Mark::Leaving {
        transfer: arrival.transfer,
        to,
    };
    // One that says it was moved goes on saying so.
    if !resumed {
        replace(source, left.as_ref(), Some(&leaving)).await?;
    }
    let mut users = source.used_by().await?.map(|users| (source.place().to_owned(), users));
    if users.is_none() {
        users = target.used_by().await?.map(|users| (target.place().to_owned(), users));
    }
    let Some((place, users)) = users else {
        return Ok(arrival);
    };
    if !resumed {
        replace(source, Some(&leaving), None).await?;
        replace(target, Some(&arrival.mark()), None).await?;
    }
    Err(TransferError::Refused(format!(
        "{place} is in use: {users}. Stop them first; nothing was moved"
    )))
}

/// Replaces the mark of a database, if nobody else does.
pub(super) async fn replace(end: &mut dyn End, was: Option<&Mark>, now: Option<&Mark>) -> Result<()> {
    match end.set_mark(was, now).await? {
        true => Ok(()),
        false => Err(TransferError::Refused(format!(
            "another transfer works on {} at the same time",
            end.place()
        ))),
    }
}
