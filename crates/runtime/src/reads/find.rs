//! Runs that match a query: names of workflows, tags and times become a filter that the store has indexes for.

use super::{MAX_PAGE, Reads};
use crate::{
    error::{EngineError, Refusal},
    query::Query,
};
use fermata_core::RunId;
use fermata_store::{
    definitions::WorkflowFilter,
    reads::{Order, RunFilter, RunPage},
    triggers::request_id,
};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The most workflows that patterns may match. Runs of more tagged workflows are found one by one.
const MAX_WORKFLOWS: u32 = 1000;
/// A uid that no workflow has.
const NO_WORKFLOW: Uuid = Uuid::max();

/// A page of the runs that match a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunWindow {
    /// The order.
    pub order: Order,
    /// Only runs after this one, in that order.
    pub after: Option<RunId>,
    /// At most this many.
    pub limit: u32,
}

impl Reads<'_> {
    /// The runs that match a query, without their payloads.
    pub async fn find(&self, query: &Query, window: RunWindow) -> Result<RunPage, EngineError> {
        self.runs(self.filter(query, window).await?).await
    }

    /// What a query means for this caller.
    pub async fn filter(&self, query: &Query, window: RunWindow) -> Result<RunFilter, EngineError> {
        let mut filter = self.filter_of(query).await?;
        (filter.order, filter.limit) = (window.order, window.limit);
        match (window.order, window.after) {
            (_, None) => {}
            (Order::NewestFirst, Some(last)) => {
                filter.before = Some(filter.before.map_or(last, |before| before.min(last)));
            }
            (Order::OldestFirst, Some(last)) => {
                let next = RunId(Uuid::from_u128(last.0.as_u128().saturating_add(1)));
                filter.from = Some(filter.from.map_or(next, |from| from.max(next)));
            }
        }
        Ok(filter)
    }

    async fn filter_of(&self, query: &Query) -> Result<RunFilter, EngineError> {
        let now = u64::try_from(self.engine.now().millis()).unwrap_or(0);
        let first_at = |millis: u64| RunId(Uuid::from_u128(u128::from(millis.min((1 << 48) - 1)) << 80));
        let mut filter = RunFilter {
            ids: query.ids.clone(),
            statuses: query.statuses.clone(),
            tags: query.tags.clone(),
            fields: query.fields.clone(),
            tenant: query.tenant.clone(),
            correlation_id: query.correlation.clone(),
            request_id: query.request.clone(),
            runner: query.runner,
            search: query.text.clone(),
            from: query.since.map(|since| first_at(since.millis(now))),
            before: query.until.map(|until| first_at(until.millis(now))),
            ..RunFilter::default()
        };
        let mut workflows = match query.workflows.is_empty() {
            true => None,
            false => Some(self.named_workflows(query).await?),
        };
        if !query.tags.is_empty() {
            let store = &self.engine.shared.store;
            let tagged = store.tagged(query.tags.clone(), MAX_WORKFLOWS + 1).await?;
            // The store checks the tags of each run too, so all workflows may be searched.
            if tagged.len() <= MAX_WORKFLOWS as usize {
                let tagged: BTreeSet<Uuid> = tagged.into_iter().collect();
                workflows = Some(narrowed(workflows, tagged));
            }
        }
        if let Some(id) = query.trigger {
            let trigger = self.engine.shared.store.trigger(id).await?;
            let trigger = trigger.filter(|trigger| self.is_own(&trigger.tenant));
            let workflow = trigger.map(|trigger| trigger.workflow_uid);
            workflows = Some(narrowed(workflows, workflow.into_iter().collect()));
            filter.request_prefix = Some(request_id(id, ""));
        }
        if let Some(workflows) = workflows {
            filter.workflows = workflows.into_iter().collect();
            if filter.workflows.is_empty() {
                filter.workflows.push(NO_WORKFLOW);
            }
        }
        Ok(filter)
    }

    /// The workflows that a query names, as this caller or the tenant in the query means them.
    async fn named_workflows(&self, query: &Query) -> Result<BTreeSet<Uuid>, EngineError> {
        let reads = self.for_tenant(query.tenant.as_deref());
        let mut found = BTreeSet::new();
        for name in &query.workflows {
            match name.contains('*') {
                false => found.extend(reads.find_workflow(name).await?.map(|workflow| workflow.uid)),
                true => reads.add_matching(name, &mut found).await?,
            }
        }
        Ok(found)
    }

    async fn add_matching(&self, pattern: &str, found: &mut BTreeSet<Uuid>) -> Result<(), EngineError> {
        let longest = pattern.split('*').max_by_key(|part| part.len()).unwrap_or_default();
        let mut filter = WorkflowFilter {
            search: Some(longest.to_owned()).filter(|part| !part.is_empty()),
            tenant: self.tenant.map(str::to_owned),
            limit: MAX_PAGE,
            ..WorkflowFilter::default()
        };
        loop {
            let page = self.workflows(filter.clone()).await?;
            let last = page.items.last().map(|last| (last.id.clone(), last.tenant.clone()));
            let matching = page.items.into_iter().filter(|workflow| matches(pattern, &workflow.id));
            found.extend(matching.map(|workflow| workflow.uid));
            if found.len() > MAX_WORKFLOWS as usize {
                let pattern = pattern.to_owned();
                return Err(Refusal::PatternTooWide {
                    pattern,
                    most: MAX_WORKFLOWS,
                }
                .into());
            }
            match page.more {
                true => filter.after = last,
                false => return Ok(()),
            }
        }
    }
}

fn narrowed(before: Option<BTreeSet<Uuid>>, to: BTreeSet<Uuid>) -> BTreeSet<Uuid> {
    match before {
        Some(before) => before.intersection(&to).copied().collect(),
        None => to,
    }
}

/// Whether a name matches a pattern: `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest
        .rsplit_once('*')
        .map_or((None, rest), |(middle, last)| (Some(middle), last));
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("order-*", "order-eu", true),
            ("order-*", "order-", true),
            ("order-*", "my-order-eu", false),
            ("*-eu", "order-eu", true),
            ("*-eu", "order-eu-2", false),
            ("o*e*u", "order-eu", true),
            ("o*e*u*", "order-eu", true),
            ("o*x*u", "order-eu", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("*", "", true),
            ("ä*ö", "äö", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
