//! The routes, one file for each resource.

mod analysis;
mod audit;
mod bulk;
mod callbacks;
mod dead_letters;
mod deliveries;
mod docs;
mod drafts;
pub(crate) mod dry_run;
mod events;
mod executions;
mod health;
mod hierarchy;
mod inbox;
mod jsondagapi;
mod keys;
mod lifecycle;
pub(crate) mod list;
mod metrics;
#[cfg(test)]
mod openapi;
mod operate;
mod registered_callbacks;
mod rerun;
mod runners;
mod runs;
pub(crate) mod scopes;
mod stats;
mod streams;
mod triggers;
mod webhooks;
mod workflows;

use crate::{Web, envelope::without_token, error::ApiError, pages};
use axum::{
    Router,
    http::{Method, StatusCode, Uri},
    routing::{delete, get, post, put},
};
use fermata_runtime::Role;

/// The routes of a process of this role. A runner has health checks and metrics only.
pub(crate) fn routes(web: &Web) -> Router<Web> {
    let routes = match web.settings().role {
        Role::All | Role::Api => with_own_webhooks(web, health().merge(resources()).merge(pages::routes())),
        Role::Runner => health(),
    };
    let routes = routes.route("/metrics", get(metrics::get));
    routes.fallback(no_route).method_not_allowed_fallback(no_method)
}

/// With the route of webhooks, if it is not below `/api/v1/triggers`.
fn with_own_webhooks(web: &Web, routes: Router<Web>) -> Router<Web> {
    match web.webhooks.own_route() {
        Some(path) => Router::route(routes, &path, post(webhooks::receive)),
        None => routes,
    }
}

/// The routes of connections above the limit.
pub(crate) fn health_only() -> Router<Web> {
    health()
        .fallback(too_many_connections)
        .method_not_allowed_fallback(no_method)
}

/// Whether concurrent reads of this path are limited. Health checks and metrics are not: they are needed most when reads are
/// slow.
pub(crate) fn is_limited(path: &str) -> bool {
    !path.starts_with("/health/") && path != "/metrics"
}

fn health() -> Router<Web> {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
}

fn resources() -> Router<Web> {
    Router::new()
        .route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::page))
        .route("/docs/{file}", get(docs::file))
        .route("/api/v1/workflows", get(workflows::list).post(workflows::add))
        // A workflow may be named `validate` too.
        .route(
            "/api/v1/workflows/validate",
            post(drafts::validate)
                .get(workflows::get)
                .put(workflows::replace)
                .patch(jsondagapi::patch)
                .delete(lifecycle::delete),
        )
        // And `dry-run`.
        .route(
            "/api/v1/workflows/dry-run",
            post(dry_run::run)
                .get(workflows::get)
                .put(workflows::replace)
                .patch(jsondagapi::patch)
                .delete(lifecycle::delete),
        )
        .route(
            "/api/v1/workflows/{id}",
            get(workflows::get)
                .put(workflows::replace)
                .patch(jsondagapi::patch)
                .delete(lifecycle::delete),
        )
        .route("/api/v1/workflows/{id}/nodes", post(jsondagapi::add_node))
        .route(
            "/api/v1/workflows/{id}/nodes/{node}",
            put(jsondagapi::update_node).delete(jsondagapi::remove_node),
        )
        .route(
            "/api/v1/workflows/{id}/edges",
            post(jsondagapi::add_edge).delete(jsondagapi::remove_edge),
        )
        .route("/api/v1/analysis/validate", post(analysis::validate))
        .route("/api/v1/analysis/inspect", post(analysis::inspected))
        .route("/api/v1/workflows/{id}/versions", get(workflows::versions))
        .route(
            "/api/v1/workflows/{id}/versions/{version}/activate",
            post(lifecycle::activate),
        )
        .route("/api/v1/workflows/{id}/draft", get(drafts::get).put(drafts::put))
        .route("/api/v1/workflows/{id}/publish", post(workflows::publish))
        .route("/api/v1/workflows/{id}/archive", post(lifecycle::archive))
        .route("/api/v1/workflows/{id}/reactivate", post(lifecycle::reactivate))
        .route("/api/v1/workflows/{id}/enable", post(lifecycle::enable))
        .route("/api/v1/workflows/{id}/disable", post(lifecycle::disable))
        .route("/api/v1/workflows/{id}/pause", post(lifecycle::pause))
        .route("/api/v1/workflows/{id}/resume", post(lifecycle::resume))
        .route("/api/v1/workflows/{id}/execute", post(executions::start))
        .route("/api/v1/workflows/{id}/trigger", post(runs::trigger))
        .route("/api/v1/workflows/{id}/runs", get(runs::list))
        .route("/api/v1/workflows/{id}/runs/{run_id}", get(runs::get))
        .route("/api/v1/workflows/{id}/runs/{run_id}/cancel", post(runs::cancel))
        .route("/wh/{token}", post(callbacks::answer))
        .route("/api/v1/triggers", get(triggers::list).post(triggers::create))
        .route("/api/v1/triggers/preview", post(triggers::preview))
        .route(
            "/api/v1/triggers/{trigger}",
            get(triggers::get)
                .put(triggers::update)
                .delete(triggers::delete)
                .post(webhooks::receive),
        )
        .route("/api/v1/triggers/{trigger}/enable", post(triggers::enable))
        .route("/api/v1/triggers/{trigger}/disable", post(triggers::disable))
        .route("/api/v1/triggers/{trigger}/fire", post(triggers::fire))
        .route("/api/v1/triggers/{trigger}/rotate", post(triggers::rotate))
        .route("/api/v1/triggers/{trigger}/deliveries", get(deliveries::list))
        .route("/api/v1/triggers/{trigger}/deliveries/{delivery}", get(deliveries::get))
        .route(
            "/api/v1/triggers/{trigger}/deliveries/{delivery}/replay",
            post(deliveries::replay),
        )
        .route("/api/v1/events", post(events::publish))
        .route("/api/v1/callbacks", get(registered_callbacks::list))
        .route("/api/v1/callbacks/register", post(registered_callbacks::register))
        .route("/api/v1/callbacks/{id}", delete(registered_callbacks::delete))
        .route("/api/v1/executions", get(list::list).post(executions::create))
        .route(
            "/api/v1/executions/{id}",
            get(executions::get).delete(executions::delete),
        )
        .route("/api/v1/executions/{id}/hierarchy", get(hierarchy::get))
        .route("/api/v1/executions/{id}/cancel", post(executions::cancel))
        .route("/api/v1/executions/{id}/rerun", post(rerun::rerun))
        .route("/api/v1/executions/{id}/stream", get(streams::run))
        .route("/api/v1/stream", get(streams::list))
        .route("/api/v1/stats", get(stats::get))
        .route("/api/v1/executions/{id}/pause", post(operate::pause))
        .route("/api/v1/executions/{id}/resume", post(operate::resume))
        .route("/api/v1/executions/{id}/nodes/{node}/skip", post(operate::skip))
        .route("/api/v1/executions/{id}/nodes/{node}/resend", post(operate::resend))
        .route("/api/v1/executions/{id}/nodes/{node}/callback", post(inbox::callback))
        .route(
            "/api/v1/executions/{id}/nodes/{node}/complete",
            post(inbox::complete_node),
        )
        .route("/api/v1/executions/{id}/decisions/{node}", post(inbox::decide))
        .route("/api/v1/inbox", get(inbox::list))
        .route("/api/v1/inbox/claim", post(inbox::claim))
        .route("/api/v1/inbox/{id}", get(inbox::get))
        .route("/api/v1/inbox/{id}/answer", post(inbox::answer))
        .route("/api/v1/inbox/{id}/heartbeat", post(inbox::heartbeat))
        .route("/api/v1/inbox/{id}/complete", post(inbox::complete))
        .route("/api/v1/inbox/{id}/fail", post(inbox::fail))
        .route("/api/v1/bulk", get(bulk::list).post(bulk::create))
        .route("/api/v1/bulk/{id}", get(bulk::get))
        .route("/api/v1/bulk/{id}/items", get(bulk::items))
        .route("/api/v1/bulk/{id}/start", post(bulk::start))
        .route("/api/v1/bulk/{id}/cancel", post(bulk::cancel))
        .route("/api/v1/audit", get(audit::list))
        .route("/api/v1/runners", get(runners::list))
        .route(
            "/api/v1/admin/dead-letters",
            get(dead_letters::list).delete(dead_letters::purge),
        )
        .route(
            "/api/v1/admin/dead-letters/{id}",
            get(dead_letters::get).delete(dead_letters::delete),
        )
        .route("/api/v1/admin/dead-letters/{id}/requeue", post(dead_letters::requeue))
        .route("/api/v1/admin/keys", get(keys::list).post(keys::create))
        .route("/api/v1/admin/keys/{id}", delete(keys::revoke))
}

pub(crate) async fn no_route(uri: Uri) -> ApiError {
    ApiError::not_found(
        "NOT_FOUND",
        format!("the API has no path {}", without_token(uri.path())),
    )
}

async fn too_many_connections() -> ApiError {
    ApiError::busy("the server has reached `server.max_connections`")
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    let message = format!(
        "{method} is not allowed for {}; the header `Allow` lists the allowed methods",
        without_token(uri.path())
    );
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message)
}
