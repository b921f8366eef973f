//! The scope that each route needs.
//!
//! What must stay true: the table has a row for each route and method of [`super::resources`], of the pages and the health checks; a test
//! compares them. A request to a route without a row needs `admin`, so a forgotten row refuses too much, never too little.

use crate::Web;
use axum::{
    extract::{MatchedPath, Request},
    http::Method,
};
use fermata_runtime::Scope;

const NONE: Option<Scope> = None;
const READ: Option<Scope> = Some(Scope::Read);
const EXECUTE: Option<Scope> = Some(Scope::Execute);
const MANAGE: Option<Scope> = Some(Scope::Manage);
const ADMIN: Option<Scope> = Some(Scope::Admin);

/// Method, route, scope. Health checks need no token; the token in the URL of a callback, and the last
/// segment of the URL of a webhook, are their credentials.
const TABLE: &[(Method, &str, Option<Scope>)] = &[
    (Method::GET, "/health/live", NONE),
    (Method::GET, "/health/ready", NONE),
    (Method::GET, "/metrics", ADMIN),
    (Method::POST, "/wh/{token}", NONE),
    (Method::GET, "/openapi.json", NONE),
    (Method::GET, "/docs", NONE),
    (Method::GET, "/docs/{file}", NONE),
    (Method::GET, "/", READ),
    (Method::GET, "/runs/{id}", READ),
    (Method::GET, "/runs/{id}/data/{part}", READ),
    (Method::GET, "/runs/{id}/nodes/{node}/attempts/{attempt}/{part}", READ),
    (Method::GET, "/workflows", READ),
    (Method::GET, "/workflows/new", MANAGE),
    (Method::POST, "/workflows/new", MANAGE),
    (Method::POST, "/workflows/new/dry-run", MANAGE),
    (Method::GET, "/workflows/{id}", READ),
    (Method::GET, "/workflows/{id}/difference", READ),
    (Method::GET, "/workflows/{id}/edit", MANAGE),
    (Method::POST, "/workflows/{id}/edit", MANAGE),
    (Method::GET, "/inbox", READ),
    (Method::GET, "/inbox/{id}", READ),
    (Method::GET, "/system", ADMIN),
    (Method::POST, "/sign-in", NONE),
    (Method::POST, "/sign-out", NONE),
    (Method::GET, "/assets/{file}", NONE),
    (Method::GET, "/api/v1/workflows", READ),
    (Method::POST, "/api/v1/workflows", MANAGE),
    (Method::POST, "/api/v1/workflows/validate", READ),
    (Method::GET, "/api/v1/workflows/validate", READ),
    (Method::PUT, "/api/v1/workflows/validate", MANAGE),
    (Method::PATCH, "/api/v1/workflows/validate", MANAGE),
    (Method::DELETE, "/api/v1/workflows/validate", MANAGE),
    (Method::POST, "/api/v1/workflows/dry-run", MANAGE),
    (Method::GET, "/api/v1/workflows/dry-run", READ),
    (Method::PUT, "/api/v1/workflows/dry-run", MANAGE),
    (Method::PATCH, "/api/v1/workflows/dry-run", MANAGE),
    (Method::DELETE, "/api/v1/workflows/dry-run", MANAGE),
    (Method::GET, "/api/v1/workflows/{id}", READ),
    (Method::PUT, "/api/v1/workflows/{id}", MANAGE),
    (Method::PATCH, "/api/v1/workflows/{id}", MANAGE),
    (Method::DELETE, "/api/v1/workflows/{id}", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/nodes", MANAGE),
    (Method::PUT, "/api/v1/workflows/{id}/nodes/{node}", MANAGE),
    (Method::DELETE, "/api/v1/workflows/{id}/nodes/{node}", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/edges", MANAGE),
    (Method::DELETE, "/api/v1/workflows/{id}/edges", MANAGE),
    (Method::POST, "/api/v1/analysis/validate", READ),
    (Method::POST, "/api/v1/analysis/inspect", READ),
    (Method::GET, "/api/v1/workflows/{id}/versions", READ),
    (
        Method::POST,
        "/api/v1/workflows/{id}/versions/{version}/activate",
        MANAGE,
    ),
    (Method::GET, "/api/v1/workflows/{id}/draft", READ),
    (Method::PUT, "/api/v1/workflows/{id}/draft", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/publish", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/archive", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/reactivate", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/enable", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/disable", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/pause", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/resume", MANAGE),
    (Method::POST, "/api/v1/workflows/{id}/execute", EXECUTE),
    (Method::POST, "/api/v1/workflows/{id}/trigger", EXECUTE),
    (Method::GET, "/api/v1/workflows/{id}/runs", READ),
    (Method::GET, "/api/v1/workflows/{id}/runs/{run_id}", READ),
    (Method::POST, "/api/v1/workflows/{id}/runs/{run_id}/cancel", EXECUTE),
    (Method::GET, "/api/v1/triggers", MANAGE),
    (Method::POST, "/api/v1/triggers", MANAGE),
    (Method::POST, "/api/v1/triggers/preview", READ),
    (Method::GET, "/api/v1/triggers/{trigger}", MANAGE),
    (Method::PUT, "/api/v1/triggers/{trigger}", MANAGE),
    (Method::DELETE, "/api/v1/triggers/{trigger}", MANAGE),
    (Method::POST, "/api/v1/triggers/{trigger}", NONE),
    (Method::POST, "/api/v1/triggers/{trigger}/enable", MANAGE),
    (Method::POST, "/api/v1/triggers/{trigger}/disable", MANAGE),
    (Method::POST, "/api/v1/triggers/{trigger}/fire", EXECUTE),
    (Method::POST, "/api/v1/triggers/{trigger}/rotate", MANAGE),
    (Method::GET, "/api/v1/triggers/{trigger}/deliveries", MANAGE),
    (Method::GET, "/api/v1/triggers/{trigger}/deliveries/{delivery}", MANAGE),
    (
        Method::POST,
        "/api/v1/triggers/{trigger}/deliveries/{delivery}/replay",
        MANAGE,
    ),
    (Method::POST, "/api/v1/events", EXECUTE),
    (Method::GET, "/api/v1/callbacks", READ),
    (Method::POST, "/api/v1/callbacks/register", MANAGE),
    (Method::DELETE, "/api/v1/callbacks/{id}", MANAGE),
    (Method::GET, "/api/v1/executions", READ),
    (Method::POST, "/api/v1/executions", EXECUTE),
    (Method::GET, "/api/v1/executions/{id}", READ),
    (Method::DELETE, "/api/v1/executions/{id}", MANAGE),
    (Method::GET, "/api/v1/executions/{id}/hierarchy", READ),
    (Method::POST, "/api/v1/executions/{id}/cancel", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/rerun", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/pause", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/resume", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/nodes/{node}/skip", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/nodes/{node}/resend", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/nodes/{node}/callback", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/nodes/{node}/complete", EXECUTE),
    (Method::POST, "/api/v1/executions/{id}/decisions/{node}", EXECUTE),
    (Method::GET, "/api/v1/executions/{id}/stream", READ),
    (Method::GET, "/api/v1/stream", READ),
    (Method::GET, "/api/v1/stats", READ),
    (Method::GET, "/api/v1/inbox", READ),
    (Method::POST, "/api/v1/inbox/claim", EXECUTE),
    (Method::GET, "/api/v1/inbox/{id}", READ),
    (Method::POST, "/api/v1/inbox/{id}/answer", EXECUTE),
    (Method::POST, "/api/v1/inbox/{id}/heartbeat", EXECUTE),
    (Method::POST, "/api/v1/inbox/{id}/complete", EXECUTE),
    (Method::POST, "/api/v1/inbox/{id}/fail", EXECUTE),
    // The scope of the action is checked too.
    (Method::GET, "/api/v1/bulk", READ),
    (Method::POST, "/api/v1/bulk", EXECUTE),
    (Method::GET, "/api/v1/bulk/{id}", READ),
    (Method::GET, "/api/v1/bulk/{id}/items", READ),
    (Method::POST, "/api/v1/bulk/{id}/start", EXECUTE),
    (Method::POST, "/api/v1/bulk/{id}/cancel", EXECUTE),
    (Method::GET, "/api/v1/audit", ADMIN),
    (Method::GET, "/api/v1/runners", ADMIN),
    (Method::GET, "/api/v1/admin/dead-letters", ADMIN),
    (Method::DELETE, "/api/v1/admin/dead-letters", ADMIN),
    (Method::GET, "/api/v1/admin/dead-letters/{id}", ADMIN),
    (Method::DELETE, "/api/v1/admin/dead-letters/{id}", ADMIN),
    (Method::POST, "/api/v1/admin/dead-letters/{id}/requeue", ADMIN),
    (Method::GET, "/api/v1/admin/keys", ADMIN),
    (Method::POST, "/api/v1/admin/keys", ADMIN),
    (Method::DELETE, "/api/v1/admin/keys/{id}", ADMIN),
];

/// The scope that a request needs; `None` if it needs no caller. A path without a route needs none: the response is 404.
pub(crate) fn need(web: &Web, request: &Request) -> Option<Scope> {
    let route = request.extensions().get::<MatchedPath>()?;
    let is_trigger = route.as_str().ends_with("/{trigger}");
    if is_trigger && web.webhooks.is_webhook(request.method(), request.uri().path()) {
        return None;
    }
    // The router answers HEAD with the handler of GET.
    let method = match *request.method() {
        Method::HEAD => &Method::GET,
        ref method => method,
    };
    scope_of(method, route.as_str())
}

/// The scope of a route.
pub(super) fn scope_of(method: &Method, route: &str) -> Option<Scope> {
    let row = TABLE.iter().find(|(of, path, _)| *path == route && of == method);
    row.map_or(ADMIN, |(_, _, scope)| *scope)
}

/// `(method, path)` of each route in the router's source.
#[cfg(test)]
pub(super) fn routes() -> Vec<(String, String)> {
    let sources = [include_str!("../api.rs"), include_str!("../pages.rs")];
    let mut routes = Vec::new();
    for call in sources.iter().flat_map(|source| source.split(".route(").skip(1)) {
        let path = call.split('"').nth(1).unwrap();
        let handlers = call.split(".fallback(").next().unwrap();
        for method in ["get", "post", "put", "delete", "patch"] {
            if handlers.contains(&format!("{method}(")) {
                routes.push((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_scope() {
        let mut routes = routes();
        let row = |(method, path, _): &(Method, &str, _)| (method.to_string(), (*path).to_owned());
        let mut rows: Vec<_> = TABLE.iter().map(row).collect();
        assert!(routes.len() > 50, "the routes were not found: {routes:?}");
        routes.sort();
        rows.sort();
        assert_eq!(rows, routes, "the table of scopes and the routes differ");
    }
}
