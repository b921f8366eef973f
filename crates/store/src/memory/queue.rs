//! Free and held runs in memory, and which of them a claim takes.
//!
//! What must stay true: `free` and `held` are exactly the runs with a `wake_at`, and `prioritised` and `groups` are
//! `free` in another order; all of them change in [`State::place`] and nowhere else.

use super::State;
use crate::{
    priority::{self, Due, MAX_GROUPS, Places, Queue},
    runs::{Claim, Claimed},
};
use fermata_core::{RunId, RunnerId, Timestamp};
use std::{cmp::Reverse, convert::Infallible, ops::Bound};
use uuid::Uuid;

impl State {
    /// Sets the owner and the wake time of a run, and keeps the indexes in step.
    pub(super) fn place(&mut self, run: RunId, owner: Option<RunnerId>, wake_at: Option<Timestamp>) {
        let Some(entry) = self.runs.get_mut(&run) else {
            return;
        };
        let was = (entry.lease_owner, entry.wake_at);
        (entry.lease_owner, entry.wake_at) = (owner, wake_at);
        let priority = Reverse(entry.new.priority.unwrap_or(0));
        let workflow = entry.new.workflow_uid;
        let group = (entry.new.tenant.clone(), workflow);
        match was {
            (None, Some(at)) => {
                self.free.remove(&(at, run));
                if let Some(prioritised) = self.prioritised.get_mut(&workflow) {
                    prioritised.remove(&(priority, at, run));
                    if prioritised.is_empty() {
                        self.prioritised.remove(&workflow);
                    }
                }
                if let Some(runs) = self.groups.get_mut(&group) {
                    runs.remove(&(at, run));
                    if runs.is_empty() {
                        self.groups.remove(&group);
                    }
                }
            }
            (Some(owner), Some(at)) => {
                self.held.remove(&(owner, at, run));
            }
            (_, None) => {}
        }
        match (owner, wake_at) {
            (None, Some(at)) => {
                self.free.insert((at, run));
                if priority != Reverse(0) {
                    self.prioritised
                        .entry(workflow)
                        .or_default()
                        .insert((priority, at, run));
                }
                self.groups.entry(group).or_default().insert((at, run));
            }
            (Some(owner), Some(at)) => {
                self.held.insert((owner, at, run));
            }
            (_, None) => {}
        }
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Claimed {
        let limit = claim.limit as usize;
        let ids: Vec<RunId> = match claim.only.is_empty() {
            false => {
                let claimable = claim.only.iter().copied().filter(|run| self.claimable(claim, *run));
                claimable.take(limit).collect()
            }
            true => {
                let held = claim.dead_before.iter().flat_map(|_| &self.held);
                let orphans = held
                    .filter(|(owner, ..)| self.is_dead(claim, *owner))
                    .map(|(.., id)| *id);
                let mut ids: Vec<RunId> = orphans.take(limit).collect();
                let free = self.due(claim.now, priority::left_for_free(claim.limit, ids.len()));
                ids.truncate(limit - free.len());
                ids.extend(free);
                ids
            }
        };
        let mut runs = Vec::with_capacity(ids.len());
        for id in ids {
            let wake_at = self.runs.get(&id).and_then(|entry| entry.wake_at).unwrap_or(claim.now);
            self.place(id, Some(claim.runner), Some(wake_at));
            if let Some(entry) = self.runs.get_mut(&id) {
                entry.epoch += 1;
                entry.takeovers += 1;
                runs.push(entry.stored());
            }
        }
        let next_due = self.free.first().map(|(at, _)| *at);
        Claimed { runs, next_due }
    }

    fn claimable(&self, claim: &Claim, run: RunId) -> bool {
        self.runs.get(&run).is_some_and(|entry| {
            !entry.status.is_terminal() && entry.lease_owner.is_none_or(|owner| self.is_dead(claim, owner))
        })
    }

    /// Whether the runs of an owner may be claimed. The claiming runner itself is alive.
    fn is_dead(&self, claim: &Claim, owner: RunnerId) -> bool {
        let Some(dead_before) = claim.dead_before else {
            return false;
        };
        owner != claim.runner && self.runners.get(&owner).is_none_or(|(_, at)| *at < dead_before)
    }

    /// Free runs that are due, in the order and with the shares of [`priority`].
    pub(super) fn due(&mut self, now: Timestamp, limit: u32) -> Vec<RunId> {
        let prioritised = !self.prioritised.is_empty();
        let looked_at = priority::looked_at(limit, prioritised) as usize;
        let front = self.free.iter().take_while(|(at, _)| *at <= now).take(looked_at);
        let front = front.filter_map(|(_, run)| self.waiting(*run)).collect();
        let places = Places {
            count: limit as usize,
            prioritised,
            now,
        };
        let Ok(runs) = priority::choose(&places, front, &mut Free { state: self, now });
        runs
    }

    fn waiting(&self, run: RunId) -> Option<Due> {
        let entry = self.runs.get(&run)?;
        Some(Due {
            tenant: entry.new.tenant.clone(),
            workflow: entry.new.workflow_uid,
            priority: entry.new.priority.unwrap_or(0),
            wake_at: entry.wake_at?,
            run,
        })
    }
}

struct Free<'a> {
    state: &'a mut State,
    now: Timestamp,
}

impl Queue for Free<'_> {
    type Error = Infallible;

    fn urgent(&mut self, workflow: Uuid, most: usize) -> Result<Vec<Due>, Infallible> {
        let all = self.state.prioritised.get(&workflow).into_iter().flatten();
        let urgent = all.filter(|(Reverse(priority), at, _)| *priority > 0 && *at <= self.now);
        Ok(urgent
            .take(most)
            .filter_map(|(.., run)| self.state.waiting(*run))
            .collect())
    }

    /// Visits all groups in a circle, starting after the group where the last search stopped.
    fn heads(&mut self, but: Option<&str>) -> Result<Vec<Due>, Infallible> {
        let groups = &self.state.groups;
        let start = self.state.walked.clone();
        let after = groups.range((Bound::Excluded(&start), Bound::Unbounded));
        let upto = groups.range(..=&start);
        let others = after.chain(upto).filter(|((tenant, _), _)| but != Some(tenant));
        let (mut heads, mut walked) = (Vec::new(), start.clone());
        for (group, runs) in others.take(MAX_GROUPS) {
            let due = runs.first().filter(|(at, _)| *at <= self.now);
            heads.extend(due.and_then(|(_, run)| self.state.waiting(*run)));
            walked.clone_from(group);
        }
        self.state.walked = walked;
        Ok(heads)
    }

    fn behind(&mut self, due: &Due) -> Result<Option<Due>, Infallible> {
        let group = (due.tenant.clone(), due.workflow);
        let after = (Bound::Excluded((due.wake_at, due.run)), Bound::Unbounded);
        let next = self.state.groups.get(&group).and_then(|runs| runs.range(after).next());
        let next = next.filter(|(at, _)| *at <= self.now);
        Ok(next.and_then(|(_, run)| self.state.waiting(*run)))
    }
}
