//! The filters of the list of runs: in the address, as a form, as a query for bulk jobs, and for the stream of changes.

use super::{
    Page,
    frame::Frame,
    parts::{cut, encoded},
};
use crate::{api::list::ListQuery, error::ApiError, time};
use fermata_core::{Status, Timestamp};
use fermata_runtime::{
    query::{Query, quoted},
    watch::MAX_LISTED,
};
use maud::{Markup, html};

/// Runs on a page, if the address does not say it.
pub(super) const LIMIT: u32 = 50;

/// The filters in an address: name and value.
pub(super) fn filters(query: &ListQuery) -> Vec<(&'static str, &str)> {
    let all = [
        ("query", &query.query),
        ("status", &query.status),
        ("workflowId", &query.workflow_id),
        ("tenantId", &query.tenant_id),
        ("correlationId", &query.correlation_id),
        ("requestId", &query.request_id),
        ("runnerId", &query.runner_id),
        ("createdAfter", &query.created_after),
        ("createdBefore", &query.created_before),
        ("search", &query.search),
    ];
    let given = all
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)));
    given.filter(|(_, value)| !value.is_empty()).collect()
}

fn joined<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    pairs.join("&")
}

/// The address of the list with the same filters.
pub(super) fn address(query: &ListQuery, cursor: Option<&str>) -> String {
    let order = query.order.as_deref().map(|order| ("order", order));
    let limit = query.limit.filter(|limit| *limit != LIMIT);
    let limit = limit.map(|limit| limit.to_string());
    let all = filters(query).into_iter().chain(order);
    let all = all.chain(limit.as_deref().map(|limit| ("limit", limit)));
    match joined(all.chain(cursor.map(|cursor| ("cursor", cursor)))).as_str() {
        "" => "/".to_owned(),
        pairs => format!("/?{pairs}"),
    }
}

/// The stream of changes of the list. Only a list with the newest runs first has one.
pub(super) fn stream(query: &ListQuery) -> Option<String> {
    let is_newest_first = query.order.as_deref().is_none_or(|order| order != "asc");
    let limit = query.limit.unwrap_or(LIMIT).min(MAX_LISTED).to_string();
    let all = filters(query).into_iter().chain([("limit", limit.as_str())]);
    is_newest_first.then(|| format!("/api/v1/stream?{}", joined(all)))
}

/// The filters as one query, for bulk jobs; `None` if there are none: a job for all runs is not offered.
pub(super) fn as_query(query: &ListQuery) -> Option<String> {
    let time = |value: &str| {
        let at = time::millis(value).and_then(|millis| i64::try_from(millis).ok());
        at.map_or_else(
            || value.to_owned(),
            |millis| time::Iso(Timestamp(millis * 1000)).to_string(),
        )
    };
    let terms = filters(query).into_iter().flat_map(|(name, value)| {
        let one = |key: &str, value: &str| vec![format!("{key}:{}", quoted(value))];
        match name {
            "query" => vec![value.trim().to_owned()],
            "status" => {
                let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
                words.map(|word| format!("status:{}", quoted(word))).collect()
            }
            "workflowId" => one("workflow", value),
            "tenantId" => one("tenant", value),
            "correlationId" => one("correlation", value),
            "requestId" => one("request", value),
            "runnerId" => one("runner", value),
            "createdAfter" => one("since", &time(value)),
            "createdBefore" => one("until", &time(value)),
            _ => one("text", value),
        }
    });
    let text = terms.collect::<Vec<_>>().join(" ");
    Some(text).filter(|text| !text.is_empty())
}

/// The page of filters that are wrong. They stay, so that they can be mended.
pub(super) fn wrong_filter(frame: Frame, query: &ListQuery, error: &ApiError) -> Page {
    let text = query.query.as_deref().unwrap_or_default();
    let corrected = Query::parse(text).err().and_then(|error| error.corrected(text));
    let corrected = corrected.filter(|text| Query::parse(text).is_ok());
    frame.page(html! {
        div.head { h1 { "Runs" } (filter_form(query)) }
        div.failure role="alert" {
            (error.message)
            @if let Some(text) = corrected {
                @let rather = ListQuery { query: Some(text.clone()), ..query.clone() };
                p { "Search for " a data-corrected href=(address(&rather, None)) { code { (cut(&text, 200)) } } " instead" }
            }
        }
    })
}

pub(super) fn filter_form(query: &ListQuery) -> Markup {
    let chosen = query.status.as_deref().unwrap_or_default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    // Filters without a field stay as they are.
    let fields = ["status", "workflowId", "query"];
    html! {
        form.filters action="/" method="get" role="search" {
            label.field { span { "Status" }
                select name="status" data-submit {
                    option value="" { "All" }
                    @for status in Status::ALL {
                        option value=(status.as_str()) selected[chosen == status.as_str()] { (status.as_str()) }
                    }
                    @if !chosen.is_empty() && Status::ALL.iter().all(|status| status.as_str() != chosen) {
                        option value=(chosen) selected { (chosen) }
                    }
                }
            }
            label.field { span { "Workflow" } input name="workflowId" value=(text(&query.workflow_id)) placeholder="any" spellcheck="false" autocapitalize="off"; }
            div.field.search {
                label for="query" { "Query" }
                div.suggests {
                    input #query type="search" name="query" value=(text(&query.query)) placeholder="status:failed workflow:order-* since:24h" data-query
                        spellcheck="false" autocapitalize="off" autocomplete="off"
                        role="combobox" aria-autocomplete="list" aria-expanded="false" aria-controls="suggestions";
                    ul #suggestions role="listbox" aria-label="Suggestions" hidden data-hold {}
                }
            }
            button.button { "Filter" }
            @for (name, value) in filters(query).into_iter().filter(|(name, _)| !fields.contains(name)) {
                input type="hidden" name=(name) value=(value);
                span.tag { (name) ": " (cut(value, 40)) }
            }
            @if !filters(query).is_empty() { a.plain href="/" { "Clear" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> ListQuery {
        let object = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        serde_json::from_value(serde_json::Value::Object(object.collect())).unwrap()
    }

    #[test]
    fn filters_become_one_query() {
        let all = list(&[
            ("query", " tag:eu since:1h"),
            ("status", "Failed, Cancelled"),
            ("workflowId", "a \"b\""),
            ("createdBefore", "1794700800000"),
            ("search", "x:y"),
        ]);
        let text = as_query(&all).unwrap();
        assert_eq!(
            text,
            r#"tag:eu since:1h status:Failed status:Cancelled workflow:"a \"b\"" until:2026-11-15T00:00:00.000Z text:x:y"#
        );
        let query = Query::parse(&text).unwrap();
        assert_eq!(
            (query.workflows, query.text.as_deref()),
            (vec![r#"a "b""#.to_owned()], Some("x:y"))
        );
        assert_eq!(as_query(&list(&[("query", "  ")])), None);
    }

    #[test]
    fn only_lists_with_the_newest_first_have_a_stream() {
        let filtered = list(&[("query", "status:failed tag:eu")]);
        assert_eq!(
            stream(&filtered).unwrap(),
            "/api/v1/stream?query=status%3Afailed%20tag%3Aeu&limit=50"
        );
        assert_eq!(stream(&list(&[("order", "asc")])), None);
    }
}
