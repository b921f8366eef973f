//! Lists of runs, for both databases: by age, filtered, in pages.
//!
//! A list walks one index in the order of ids (or one for each status, merged) and checks for each run whether it
//! matches; the rows of the page are read at the end, without payloads. This file has what is common: the choice of the
//! index, the conditions, and how walks become a page.
//!
//! What must stay true: a test of each store checks the plans of all walks. No list examines more than [`MAX_EXAMINED`]
//! runs; a list that stopped there says where to continue, so no run is skipped. A list of one tenant examines runs of that
//! tenant only, so neither its time nor the place where it stops depends on others. Two filters use an index without tenants
//! (correlation id, runner): there the database skips runs of others, so the place where the list stops is still the tenant's.

use crate::reads::{MAX_EXAMINED, Order, RunFilter};
use fermata_core::{RunId, RunnerId, Status};
use uuid::Uuid;

/// What differs between the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Indexes are named, because the planner has no statistics. A statement that cannot be prepared is better than a
    /// list that walks all runs.
    Sqlite,
    /// Indexes cannot be named, but conditions can be written so that no other index helps.
    Postgres,
}

/// A parameter of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bound {
    Text(String),
    Run(Option<RunId>),
    Runner(RunnerId),
    Workflow(Uuid),
}

/// A statement that returns ids, each with whether it matches. Parameters are written `?1`.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) sql: String,
    pub(crate) values: Vec<Bound>,
}

/// The runs that a walk found, and the last run that it examined if it did not reach the end.
pub(crate) struct Found {
    pub(crate) ids: Vec<RunId>,
    pub(crate) stopped: Option<RunId>,
}

/// The run of a tenant with a request id.
pub(crate) const BY_REQUEST_OF_TENANT: &str =
    "SELECT id FROM workflow_executions WHERE tenant_id = ?1 AND workflow_request_id = ?2";

/// How many runs each of this many walks may examine.
pub(crate) fn budget(walks: usize) -> usize {
    MAX_EXAMINED as usize / walks.max(1)
}

/// Merges walks into a page, and says where the list continues.
pub(crate) fn page(filter: &RunFilter, found: impl IntoIterator<Item = Found>) -> (Vec<RunId>, Option<RunId>) {
    let mut ids = Vec::new();
    let mut stopped: Option<RunId> = None;
    for walk in found {
        ids.extend(walk.ids);
        stopped = match (stopped, walk.stopped) {
            (Some(a), Some(b)) => Some(nearer(filter.order, a, b)),
            (a, b) => a.or(b),
        };
    }
    match filter.order {
        Order::NewestFirst => ids.sort_unstable_by(|a, b| b.cmp(a)),
        Order::OldestFirst => ids.sort_unstable(),
    }
    ids.dedup();
    // Beyond the place where one walk stopped, the result is not complete.
    if let Some(stopped) = stopped {
        ids.retain(|id| nearer(filter.order, *id, stopped) == *id);
    }
    let limit = filter.limit as usize;
    let next = match ids.get(limit) {
        Some(_) => limit.checked_sub(1).and_then(|last| ids.get(last)).copied(),
        None => stopped,
    };
    ids.truncate(limit);
    (ids, next)
}

/// Compares two runs in the order of the list.
fn nearer(order: Order, a: RunId, b: RunId) -> RunId {
    match order {
        Order::NewestFirst => a.max(b),
        Order::OldestFirst => a.min(b),
    }
}

/// The statements of the walks. `candidates` are the only runs that can match, if an index determines them.
pub(crate) fn walks(filter: &RunFilter, candidates: Option<Vec<RunId>>, flavour: Flavour) -> Vec<Walk> {
    let walker = Walker { filter, flavour };
    if let Some(candidates) = candidates {
        return candidates.into_iter().map(|id| walker.one(id)).collect();
    }
    if let Some(runner) = filter.runner {
        return vec![walker.held(runner)];
    }
    if let Some((field, values)) = filter.fields.first() {
        return values.iter().map(|value| walker.with_field(field, value)).collect();
    }
    if let Some(correlation_id) = &filter.correlation_id {
        let own = correlation_id.parse().ok().map(|id| walker.one(id));
        return own.into_iter().chain([walker.walk(Index::Correlation)]).collect();
    }
    let short = !filter.statuses.is_empty() && !filter.statuses.contains(&Status::Succeeded);
    if short {
        let mut statuses = filter.statuses.clone();
        statuses.sort_unstable_by_key(|status| status.as_str());
        statuses.dedup();
        let of_status = |status| walker.walk(Index::Status(status));
        return statuses.into_iter().map(of_status).collect();
    }
    match filter.workflows.len() {
        1..=MAX_WALKS => {
            let of_workflow = |workflow: &Uuid| walker.walk(Index::Workflow(*workflow));
            filter.workflows.iter().map(of_workflow).collect()
        }
        _ => vec![walker.walk(Index::Key)],
    }
}

/// Runs of more workflows than this are found by examining all runs.
const MAX_WALKS: usize = 50;

/// What a walk is limited to, beside the tenant.
#[derive(Clone, Copy)]
enum Index {
    Key,
    Workflow(Uuid),
    Status(Status),
    Correlation,
}

/// Conditions of a statement with their values.
#[derive(Default)]
struct Terms {
    list: Vec<String>,
    values: Vec<Bound>,
}

impl Terms {
    fn bind(&mut self, value: Bound) -> usize {
        self.values.push(value);
        self.values.len()
    }

    fn equal(&mut self, column: &str, value: Bound) {
        let at = self.bind(value);
        self.list.push(format!("{column} = ?{at}"));
    }

    fn joined(list: &[String]) -> String {
        match list.is_empty() {
            true => "TRUE".to_owned(),
            false => list.join(" AND "),
        }
    }
}

/// Binds texts, and returns their places.
fn texts(terms: &mut Terms, texts: &[String]) -> String {
    let places = texts.iter().map(|text| terms.bind(Bound::Text(text.clone())));
    listed(places.collect())
}

fn listed(places: Vec<usize>) -> String {
    let places: Vec<String> = places.into_iter().map(|at| format!("?{at}")).collect();
    places.join(", ")
}

const RUNS: &str = "workflow_executions e";

struct Walker<'a> {
    filter: &'a RunFilter,
    flavour: Flavour,
}

impl Walker<'_> {
    /// Walks one index. Conditions that it does not cover are checked for each run.
    fn walk(&self, index: Index) -> Walk {
        let filter = self.filter;
        // Runs without a tenant may be nearly all runs, and are in no index of tenants.
        let tenant = filter.tenant.as_ref().filter(|tenant| !tenant.is_empty());
        let (name, column) = match (index, tenant.is_some()) {
            (Index::Key, false) => ("", None),
            (Index::Key, true) => ("ix_executions_tenant", None),
            (Index::Workflow(workflow), of_tenant) => {
                let name = if of_tenant {
                    "ix_executions_tenant_workflow"
                } else {
                    "ix_executions_workflow"
                };
                (name, Some(("workflow_uid", Bound::Workflow(workflow))))
            }
            (Index::Status(status), of_tenant) => {
                let name = if of_tenant {
                    "ix_executions_tenant_status"
                } else {
                    "ix_executions_status"
                };
                (name, Some(("status", Bound::Text(status.as_str().to_owned()))))
            }
            (Index::Correlation, _) => {
                let correlation_id = filter.correlation_id.clone().unwrap_or_default();
                let name = "ix_executions_correlation";
                (name, Some(("correlation_id", Bound::Text(correlation_id))))
            }
        };
        let mut terms = Terms::default();
        let mut columns = Vec::new();
        match index {
            Index::Correlation => self.of_tenant_only(&mut terms),
            Index::Key | Index::Workflow(_) | Index::Status(_) => {
                if let Some(tenant) = tenant {
                    terms.list.push("tenant_id <> ''".to_owned());
                    columns.push(("tenant_id", Bound::Text(tenant.clone())));
                }
            }
        }
        match index {
            Index::Key | Index::Workflow(_) => {}
            Index::Status(_) => terms.list.push("status <> 'Succeeded'".to_owned()),
            Index::Correlation => terms.list.push("correlation_id IS NOT NULL".to_owned()),
        }
        columns.extend(column);
        let direction = self.direction();
        match self.flavour {
            _ if columns.is_empty() => {
                self.within("id", &mut terms);
                self.finish(terms, RUNS, &format!("ORDER BY id {direction}"))
            }
            Flavour::Sqlite => {
                for (column, value) in columns {
                    terms.equal(column, value);
                }
                self.within("id", &mut terms);
                let runs = format!("{RUNS} INDEXED BY {name}");
                self.finish(terms, &runs, &format!("ORDER BY id {direction}"))
            }
            Flavour::Postgres => {
                let order = columns.iter().map(|(column, _)| format!("{column} {direction}, "));
                let order = format!("ORDER BY {}id {direction}", order.collect::<String>());
                self.beside(columns, "id", &mut terms);
                self.finish(terms, RUNS, &order)
            }
        }
    }

    /// All runs that a runner holds. They fit into its memory, so they can be sorted here. There is no index in the
    /// order of ids: it would be written by every run.
    fn held(&self, runner: RunnerId) -> Walk {
        let mut terms = Terms::default();
        let at = terms.bind(Bound::Runner(runner));
        let held = match self.flavour {
            Flavour::Sqlite => {
                let held = format!("lease_owner = ?{at} AND wake_at IS NOT NULL");
                terms.list.push(held);
                format!("{RUNS} INDEXED BY ix_executions_claim")
            }
            // `OFFSET 0` hides the sorting from the planner, which would walk all runs by id otherwise.
            Flavour::Postgres => {
                let held = format!("lease_owner = ?{at} AND lease_owner IS NOT NULL");
                format!("(SELECT * FROM {RUNS} WHERE {held} OFFSET 0) e")
            }
        };
        self.of_tenant_only(&mut terms);
        self.within("id", &mut terms);
        self.finish(terms, &held, &format!("ORDER BY id {}", self.direction()))
    }

    /// Leaves out runs of other tenants where the index does not: the place where a list stops must be a run that its reader sees.
    /// Written so that no index of tenants is used for it.
    fn of_tenant_only(&self, terms: &mut Terms) {
        if let Some(tenant) = &self.filter.tenant {
            terms.equal("COALESCE(tenant_id, '')", Bound::Text(tenant.clone()));
        }
    }

    fn direction(&self) -> &'static str {
        match self.filter.order {
            Order::NewestFirst => "DESC",
            Order::OldestFirst => "ASC",
        }
    }

    /// Runs with this value of a searchable field.
    fn with_field(&self, field: &str, value: &str) -> Walk {
        const ID: &str = "f.workflow_execution_id";
        let mut terms = Terms::default();
        let mut columns = Vec::new();
        let tenant = self.filter.tenant.as_ref().filter(|tenant| !tenant.is_empty());
        let index = match tenant {
            Some(tenant) => {
                terms.list.push("f.tenant_id <> ''".to_owned());
                columns.push(("f.tenant_id", Bound::Text(tenant.clone())));
                "ix_run_fields_tenant"
            }
            None => "ix_run_fields",
        };
        columns.push(("f.field", Bound::Text(field.to_owned())));
        columns.push(("f.value", Bound::Text(value.to_owned())));
        let direction = self.direction();
        match self.flavour {
            Flavour::Sqlite => {
                for (column, value) in columns {
                    terms.equal(column, value);
                }
                self.within(ID, &mut terms);
                let runs = format!("run_fields f INDEXED BY {index} CROSS JOIN {RUNS} ON e.id = {ID}");
                self.finish(terms, &runs, &format!("ORDER BY {ID} {direction}"))
            }
            Flavour::Postgres => {
                let order = columns.iter().map(|(column, _)| format!("{column} {direction}, "));
                let order = format!("ORDER BY {}{ID} {direction}", order.collect::<String>());
                self.beside(columns, ID, &mut terms);
                // `LIMIT 1` makes it a lookup for each row, whatever the planner knows about the tables.
                let runs = format!(
                    "run_fields f CROSS JOIN LATERAL (SELECT * FROM workflow_executions WHERE id = {ID} LIMIT 1) e"
                );
                self.finish(terms, &runs, &order)
            }
        }
    }

    /// One run, if it matches.
    fn one(&self, id: RunId) -> Walk {
        let mut terms = Terms::default();
        let at = terms.bind(Bound::Run(Some(id)));
        terms.list.push(format!("id = ?{at}"));
        self.within("id", &mut terms);
        self.finish(terms, RUNS, "")
    }

    fn finish(&self, mut places: Terms, runs: &str, order: &str) -> Walk {
        let list = std::mem::take(&mut places.list);
        let fits = self.fits(places);
        let (places, expression) = (Terms::joined(&list), Terms::joined(&fits.list));
        Walk {
            sql: format!("SELECT e.id, {expression} AS fits FROM {runs} WHERE {places} {order}"),
            values: fits.values,
        }
    }

    /// The range of ids.
    fn within(&self, id: &str, terms: &mut Terms) {
        let bounds = [(">=", self.filter.from), ("<", self.filter.before)];
        for (comparison, bound) in bounds {
            if bound.is_some() {
                let at = terms.bind(Bound::Run(bound));
                terms.list.push(format!("{id} {comparison} ?{at}"));
            }
        }
    }

    /// The same together with values, as a range of all columns: only an index that starts with them has that order.
    /// With equalities and a sort by id, the planner may walk all runs by id instead.
    fn beside(&self, columns: Vec<(&str, Bound)>, id: &str, terms: &mut Terms) {
        let names: String = columns.iter().map(|(column, _)| format!("{column}, ")).collect();
        let places = columns
            .into_iter()
            .map(|(_, value)| format!("?{}, ", terms.bind(value)));
        let places: String = places.collect();
        let (first, last) = (RunId(Uuid::nil()), RunId(Uuid::max()));
        let from = terms.bind(Bound::Run(Some(self.filter.from.unwrap_or(first))));
        terms.list.push(format!("({names}{id}) >= ({places}?{from})"));
        let (until, before) = match self.filter.before {
            Some(before) => ("<", before),
            None => ("<=", last),
        };
        let before = terms.bind(Bound::Run(Some(before)));
        terms.list.push(format!("({names}{id}) {until} ({places}?{before})"));
    }

    /// The conditions that are checked for each run.
    fn fits(&self, mut terms: Terms) -> Terms {
        let filter = self.filter;
        let exact = [
            ("e.tenant_id", &filter.tenant),
            ("e.workflow_request_id", &filter.request_id),
        ];
        if !filter.workflows.is_empty() {
            let places = filter.workflows.iter().map(|uid| terms.bind(Bound::Workflow(*uid)));
            let places = listed(places.collect());
            terms.list.push(format!("e.workflow_uid IN ({places})"));
        }
        if let Some(prefix) = &filter.request_prefix {
            let at = terms.bind(Bound::Text(prefix.clone()));
            let length = prefix.chars().count();
            let start = format!("substr(e.workflow_request_id, 1, {length})");
            terms.list.push(format!("{start} = ?{at}"));
        }
        if !filter.tags.is_empty() {
            let tags = texts(&mut terms, &filter.tags);
            terms.list.push(format!(
                "EXISTS (SELECT 1 FROM workflow_tags t WHERE t.tag IN ({tags}) AND t.workflow_uid = e.workflow_uid
                 AND t.version = e.workflow_version)"
            ));
        }
        for (field, values) in &filter.fields {
            let at = terms.bind(Bound::Text(field.clone()));
            let values = texts(&mut terms, values);
            terms.list.push(format!(
                "EXISTS (SELECT 1 FROM run_fields r WHERE r.workflow_execution_id = e.id AND r.field = ?{at}
                 AND r.value IN ({values}))"
            ));
        }
        for (column, text) in exact {
            if let Some(text) = text {
                terms.equal(column, Bound::Text(text.clone()));
            }
        }
        if let Some(correlation_id) = &filter.correlation_id {
            let at = terms.bind(Bound::Text(correlation_id.clone()));
            let own = terms.bind(Bound::Run(correlation_id.parse().ok()));
            terms.list.push(format!(
                "CASE WHEN correlation_id IS NULL THEN e.id IS NOT DISTINCT FROM ?{own} ELSE correlation_id = ?{at} END"
            ));
        }
        if let Some(runner) = filter.runner {
            let at = terms.bind(Bound::Runner(runner));
            terms.list.push(format!("e.lease_owner IS NOT DISTINCT FROM ?{at}"));
        }
        if !filter.statuses.is_empty() {
            let words = filter.statuses.iter().map(|status| format!("'{}'", status.as_str()));
            let words = words.collect::<Vec<_>>().join(", ");
            terms.list.push(format!("e.status IN ({words})"));
        }
        if let Some(search) = &filter.search {
            let at = terms.bind(Bound::Text(search.to_ascii_lowercase()));
            let columns = ["workflow_request_id", "workflow_id", "COALESCE(correlation_id, '')"];
            let place = match self.flavour {
                Flavour::Sqlite => "instr",
                Flavour::Postgres => "strpos",
            };
            let any = columns.map(|column| format!("{place}(lower({column}), ?{at}) > 0"));
            terms.list.push(format!("({})", any.join(" OR ")));
        }
        terms
    }
}
