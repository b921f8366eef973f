//! Counts of the HTTP server, by route.
//!
//! What must stay true: a label is the pattern of a route (`/wh/{token}`), never a path, so neither ids nor tokens become
//! labels. Methods and statuses are grouped.

use axum::{
    extract::MatchedPath,
    http::{Method, Request},
    response::Response,
};
use fermata_metrics::{Buckets, Counter, Histogram, Kind, Labels, Text};
use std::time::Instant;

/// More than there are routes.
const MAX_ROUTES: usize = 256;

/// The label of requests without a route.
const NO_ROUTE: &str = "none";

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "other"];
const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// 0.5 ms to 5 minutes: a request may wait for the end of a run.
static TIMES: Buckets = Buckets {
    bounds: &[
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
    ],
    per_unit: 1_000_000,
};

/// The requests of one route.
struct RouteMetrics {
    /// By method and status.
    answered: [[Counter; STATUSES.len()]; METHODS.len()],
    durations: Histogram,
}

/// The requests of this server.
pub(crate) struct HttpMetrics(Labels<RouteMetrics>);

impl Default for HttpMetrics {
    fn default() -> Self {
        HttpMetrics(Labels::new(MAX_ROUTES, || RouteMetrics {
            answered: Default::default(),
            durations: Histogram::new(&TIMES),
        }))
    }
}

/// A request that is being handled.
pub(crate) struct Handling {
    began: Instant,
    method: usize,
    route: Option<MatchedPath>,
}

impl Handling {
    pub fn begin<B>(request: &Request<B>) -> Handling {
        Handling {
            began: Instant::now(),
            method: method(request.method()),
            route: request.extensions().get::<MatchedPath>().cloned(),
        }
    }
}

fn method(method: &Method) -> usize {
    let known = METHODS.iter().position(|name| *name == method.as_str());
    known.unwrap_or(METHODS.len() - 1)
}

impl HttpMetrics {
    /// Counts the response to a request.
    pub fn answered(&self, handling: &Handling, response: &Response) {
        let route = self
            .0
            .get(handling.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str));
        let class = usize::from(response.status().as_u16() / 100).clamp(1, STATUSES.len());
        route.answered[handling.method][class - 1].inc();
        route.durations.observe_time(handling.began.elapsed());
    }

    /// Adds the counts to a text.
    pub fn write(&self, text: &mut Text) {
        let routes = self.0.all();
        text.metric(
            "fermata_http_requests_total",
            Kind::Counter,
            "Requests that were answered, by route, method and class of the status.",
        );
        for (route, metrics) in &routes {
            for (method, statuses) in METHODS.iter().zip(&metrics.answered) {
                for (status, counter) in STATUSES.iter().zip(statuses) {
                    if counter.get() > 0 {
                        let labels = [("route", *route), ("method", *method), ("status", *status)];
                        text.sample(&labels, counter.get());
                    }
                }
            }
        }
        text.metric(
            "fermata_http_request_duration_seconds",
            Kind::Histogram,
            "The time until a response is ready to be sent, by route.",
        );
        for (route, metrics) in &routes {
            if metrics.durations.count() > 0 {
                text.histogram(&[("route", route)], &metrics.durations);
            }
        }
    }
}
