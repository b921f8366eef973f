//! The start of a transfer: checks the marks of both databases, and sets new ones.
//!
//! What must stay true: a database is marked before its other users are counted, so that no new user can appear in
//! between. A target with rows that are not from this transfer is never written to.

use super::{
    Result, TransferError,
    end::{Arrival, End},
    mark::{Done, Mark},
    tables::TABLES,
};
use uuid::Uuid;

/// Where a transfer starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// At the beginning, with an empty target.
    Anew,
    /// Where the transfer with this id was interrupted.
    At(Uuid, Done),
}

/// Why a transfer is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The source has the mark of another transfer.
    Source(Mark),
    /// The target has the mark of another transfer.
    Target(Mark),
    /// The target contains rows of an interrupted transfer, but `--resume` was not given.
    Interrupted,
    /// The source may have changed since the interrupted transfer.
    Changed,
    /// `--resume` was given, but there is no interrupted transfer.
    Nothing,
}

impl Reason {
    pub(super) fn explain(self, source: &dyn End, target: &str) -> TransferError {
        let from = source.place();
        TransferError::Refused(match self {
            Reason::Source(mark) => return mark.refuse(from).into(),
            Reason::Target(mark) => return mark.refuse(target).into(),
            Reason::Interrupted => format!(
                "a transfer into {target} was interrupted; continue it with --resume, or use another, empty database"
            ),
            Reason::Changed => format!(
                "the transfer into {target} cannot be resumed from {from}: it is another database, or it was reopened and \
                 may have changed since. Start a new transfer into another, empty database"
            ),
            Reason::Nothing => {
                format!("there is no interrupted transfer from {from} to {target}; start one without --resume")
            }
        })
    }
}

/// Decides from both marks whether and where a transfer starts (see the table in `mark.rs`).
pub(super) fn decide(resume: bool, source: Option<Mark>, target: Option<Mark>) -> Result<Start, Reason> {
    let source_transfer = match &source {
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
        ) => match source_transfer == Some(transfer) {
            true => Ok(Start::At(transfer, done)),
            false => Err(Reason::Changed),
        },
        // The earlier transfer ended before any row was moved.
        (Some(Mark::Arriving { transfer, .. }), Some(_)) if source_transfer == Some(transfer) => Ok(Start::Anew),
        (_, Some(elsewhere)) => Err(Reason::Source(elsewhere)),
        (Some(Mark::Arriving { .. }), None) => Ok(Start::Anew),
        (None, None) if resume => Err(Reason::Nothing),
        (None, None) => Ok(Start::Anew),
    }
}

/// Checks whether a transfer between these databases is possible, and where it starts.
pub(super) async fn check(resume: bool, source: &dyn End, target: &dyn End) -> Result<Start> {
    let place = target.place();
    if source.place() == place {
        return Err(TransferError::Refused(format!(
            "{place} is both the source and the target"
        )));
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

/// Marks both databases. The target comes first, so that a source marked as leaving always has a marked target.
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
    let (source_mark, target_mark) = (source.mark().await?, target.mark().await?);
    replace(target, target_mark.as_ref(), Some(&arrival.mark())).await?;
    let leaving = Mark::Leaving {
        transfer: arrival.transfer,
        to,
    };
    // A resumed transfer keeps the mark of the source, which may be `Moved`.
    if !resumed {
        replace(source, source_mark.as_ref(), Some(&leaving)).await?;
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

/// Replaces the mark of a database, or fails if another transfer has changed it.
pub(super) async fn replace(end: &mut dyn End, was: Option<&Mark>, now: Option<&Mark>) -> Result<()> {
    match end.set_mark(was, now).await? {
        true => Ok(()),
        false => Err(TransferError::Refused(format!(
            "another transfer is using {} at the same time",
            end.place()
        ))),
    }
}
