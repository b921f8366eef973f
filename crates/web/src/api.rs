//! The routes, one file for each resource.

mod analysis;
mod callbacks;
mod dead_letters;
mod drafts;
mod executions;
mod health;
mod hierarchy;
mod inbox;
mod jsondagapi;
mod lifecycle;
mod list;
mod runners;
mod runs;
mod workflows;

use crate::{Web, envelope::without_token, error::ApiError, read_limit};
use axum::{
    Router,
    http::{Method, StatusCode, Uri},
    middleware::from_fn_with_state,
    routing::{get, post, put},
};
use fermata_runtime::Role;

/// The routes of a process of this role. A runner has health checks only.
pub(crate) fn routes(web: &Web) -> Router<Web> {
    let routes = match web.engine.settings().role {
        Role::All | Role::Api => {
            let capped = resources().route_layer(from_fn_with_state(web.clone(), read_limit::apply));
            health().merge(capped)
        }
        Role::Runner => health(),
    };
    routes.fallback(no_route).method_not_allowed_fallback(no_method)
}

/// The routes of connections above the limit.
pub(crate) fn health_only() -> Router<Web> {
    health()
        .fallback(too_many_connections)
        .method_not_allowed_fallback(no_method)
}

fn health() -> Router<Web> {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
}

fn resources() -> Router<Web> {
    Router::new()
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
        .route("/api/v1/workflows/{id}/execute", post(executions::start))
        .route("/api/v1/workflows/{id}/trigger", post(runs::trigger))
        .route("/api/v1/workflows/{id}/runs", get(runs::list))
        .route("/api/v1/workflows/{id}/runs/{run_id}", get(runs::get))
        .route("/api/v1/workflows/{id}/runs/{run_id}/cancel", post(runs::cancel))
        .route("/wh/{token}", post(callbacks::answer))
        .route("/api/v1/executions", get(list::list).post(executions::create))
        .route(
            "/api/v1/executions/{id}",
            get(executions::get).delete(executions::delete),
        )
        .route("/api/v1/executions/{id}/hierarchy", get(hierarchy::get))
        .route("/api/v1/executions/{id}/cancel", post(executions::cancel))
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
}

async fn no_route(uri: Uri) -> ApiError {
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
