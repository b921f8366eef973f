//! `/workflows/new` and `/workflows/{id}/edit`: the source on the left, its graph and its problems on the right.
//!
//! What must stay true: nothing here saves anything. Checks and dry runs answer with parts of the page, drawn by the server. Drafts are
//! saved and published by requests to the API (`editor.js`) with the ETag of the draft that was opened, so the draft of another
//! person is never replaced without a question.

use super::{
    Page,
    difference::lines,
    dry_run,
    frame::{Frame, Tab},
    graph, json,
    layers::layout,
    parts::{ago, mark},
    versions,
    workflow::may_manage,
    workflows::{address, state},
};
use crate::{
    api::dry_run::{DryRunBody, request},
    body::run_to_completion,
    door::As,
    error::ApiError,
    extract::{DocumentBytes, Name, OptionalJson},
};
use axum::response::Html;
use fermata_core::Plan;
use fermata_dialects::{Diagnostic, Severity};
use fermata_runtime::{DryRunOf, Refusal, Session};
use fermata_store::definitions::{Lifecycle, Workflow};
use maud::{Markup, html};

/// The source of a new workflow.
const EXAMPLE: &str = r#"# A document in YAML; JSON works too.
id: my-workflow
displayName: My workflow
startNode: greet
nodes:
  - id: greet
    actionType: core.echo
    parameters:
      text: "Hello {{ trigger.name ?? 'world' }}"
"#;

/// What is edited.
struct Opened<'a> {
    workflow: Option<&'a Workflow>,
    source: String,
    /// The ETag of the draft, if there is one.
    etag: Option<String>,
    /// What the source is.
    what: Markup,
}

/// `GET /workflows/new`
pub(crate) async fn new(As(session): As) -> Result<Page, ApiError> {
    let opened = Opened {
        workflow: None,
        source: EXAMPLE.to_owned(),
        etag: None,
        what: html! { "an example" },
    };
    page(&session, opened).await
}

/// `GET /workflows/{id}/edit`: the draft, else the current version.
pub(crate) async fn edit(As(session): As, Name(reference): Name) -> Result<Page, ApiError> {
    let workflow = session.reads().workflow(&reference).await?;
    if !may_manage(&session, &workflow) {
        return Err(Refusal::Shared(workflow.id).into());
    }
    let (source, etag, what) = stored(&session, &workflow).await?;
    let opened = Opened {
        workflow: Some(&workflow),
        source,
        etag,
        what,
    };
    page(&session, opened).await
}

/// The draft with its ETag, else the current version, and what it is.
async fn stored(session: &Session, workflow: &Workflow) -> Result<(String, Option<String>, Markup), ApiError> {
    let text = json::readable;
    if let Some(draft) = session.reads().draft(workflow).await? {
        let what = html! { "draft, saved " (ago(draft.at, session.now())) };
        return Ok((text(&draft.source), Some(format!("\"{}\"", draft.checksum)), what));
    }
    let version = workflow.current_version.or(workflow.latest_version);
    let version = version.ok_or_else(|| Refusal::NoDraft(workflow.id.clone()))?;
    let definition = session.reads().definition(workflow, version).await?;
    Ok((
        text(&definition.source),
        None,
        html! { "version " (version) ", no draft" },
    ))
}

async fn page(session: &Session, opened: Opened<'_>) -> Result<Page, ApiError> {
    let Opened {
        workflow,
        source,
        etag,
        what,
    } = opened;
    let checked = session.workflows().validate(source.as_bytes(), "source").await?;
    let (graph, nodes, problems) = match checked.outcome {
        Ok((plan, _)) => (plain_graph(&plan), plan.nodes.len(), found(&checked.warnings, 0)),
        Err(problems) => (html! {}, 0, found(&problems.clone().into_list(), problems.more())),
    };
    let title = workflow.map_or_else(|| "New workflow".to_owned(), |workflow| format!("Edit {}", workflow.id));
    let home = workflow.map(address);
    let api = |end: &str| workflow.map(|workflow| format!("/api/v1/workflows/{}/{end}", workflow.uid));
    let may_publish = workflow.is_some_and(|workflow| workflow.status != Lifecycle::Archived);
    let frame = Frame::new(title.clone(), Tab::Workflows, session);
    Ok(frame.page(html! {
        div #editor data-draft=[api("draft")] data-publish-to=[api("publish")] data-etag=[etag] data-home=[home.as_deref()]
            data-latest=[workflow.and_then(|workflow| workflow.latest_version)] {
            div.head {
                nav.crumbs aria-label="Breadcrumb" { a href="/workflows" { "Workflows" } " / "
                    @if let (Some(workflow), Some(home)) = (workflow, &home) { a href=(home) { (workflow.id) } " / " }
                    span { @if workflow.is_some() { "edit" } @else { "new" } } }
                h1 { (title) }
                @if let Some(workflow) = workflow { (state(workflow)) }
                span.muted #opened { (what) }
                span.grow {}
                p.muted #said role="status" {}
                button.button.js data-save { @if workflow.is_some() { "Save draft" } @else { "Save" } }
                @if may_publish { button.button.primary.js data-publish { "Publish" } }
            }
            noscript { p.error { "The editor needs JavaScript." } }
            p.error role="alert" #failed {}
            section.card.conflict #conflict hidden aria-label="Conflict" {
                header { h2 { "The draft has changed meanwhile" } }
                div.pad.stack {
                    p #conflict-text {}
                    div.buttons {
                        button.button data-compare { "Show the difference" }
                        @if let Some(home) = &home { a.button href=(format!("{home}/edit")) target="_blank" { "Open the other version" } }
                        button.button.danger data-overwrite { "Replace it with mine" }
                    }
                }
                div #conflict-difference {}
            }
            div.columns.editor {
                section.card aria-label="Source" {
                    header { h2 { "Source" } span.muted { "JSON or YAML" } span.grow {} span.muted.wide { kbd { "Ctrl S" } " saves, " kbd { "Esc" } " then " kbd { "Tab" } " leaves" } }
                    div.code {
                        pre.gutter #gutter aria-hidden="true" {}
                        // A first line break is not part of the value.
                        textarea #source aria-label="Source" spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off" { "\n" (source) }
                    }
                }
                div.stack {
                    section.card {
                        header { h2 { "Problems" } }
                        div #problems aria-live="polite" { (problems) }
                    }
                    (graph::panel(&graph, nodes))
                    (dry_run::form())
                }
            }
        }
        script type="module" src="/assets/editor.js" {}
    }))
}

/// The graph of a plan whose nodes lead nowhere.
fn plain_graph(plan: &Plan) -> Markup {
    let layout = layout(plan.nodes.len(), &graph::edges(plan));
    let nodes: Vec<_> = plan.nodes.iter().map(graph::unlinked).collect();
    graph::draw(&nodes, &graph::drawn_edges(plan, |_, _| "open"), &layout, None)
}

/// The problems of a document, each of which is a button that leads to its line.
fn found(problems: &[Diagnostic], more: usize) -> Markup {
    html! {
        @if problems.is_empty() { p.pad { (mark("succeeded", "No problems")) } }
        @else {
            ul.problems {
                @for problem in problems {
                    @let kind = match problem.severity { Severity::Error => ("failed", "Error"), Severity::Warning => ("waiting", "Warning") };
                    li {
                        button.found data-line=(problem.line) data-column=(problem.column) data-end-line=(problem.end_line) data-end-column=(problem.end_column) {
                            (mark(kind.0, kind.1)) " " span.muted.mono { (problem.line) ":" (problem.column) } " " (problem.message)
                            @if let Some(suggestion) = &problem.suggestion { span.muted { " " (suggestion) } }
                        }
                    }
                }
            }
            @if more > 0 { p.pad.muted { "and " (more) " more" } }
        }
    }
}

/// `POST /workflows/new`: checks a document as publishing does. Parts of the page that change.
pub(crate) async fn check(
    As(session): As,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Html<String>, ApiError> {
    run_to_completion(share, async move {
        let checked = session.workflows().validate(&source, "source").await?;
        let parts = match checked.outcome {
            Ok((plan, _)) => html! {
                div #problems { (found(&checked.warnings, 0)) }
                (graph_parts(&plain_graph(&plan), plan.nodes.len()))
            },
            // The graph stays that of the last source without errors.
            Err(problems) => html! { div #problems { (found(&problems.clone().into_list(), problems.more())) } },
        };
        Ok(Html(parts.into_string()))
    })
    .await
}

fn graph_parts(graph: &Markup, nodes: usize) -> Markup {
    html! {
        div #graph { (graph) }
        span #node-count { (graph::counted(nodes)) }
    }
}

/// `POST /workflows/new/dry-run`: executes a document without effects, as `POST /api/v1/workflows/dry-run` does. Parts of the page that change.
pub(crate) async fn dry_run(
    As(session): As,
    OptionalJson(body, share): OptionalJson<DryRunBody>,
) -> Result<Html<String>, ApiError> {
    let (of, request) = request(body)?;
    run_to_completion(share, async move {
        let DryRunOf::Document(source) = &of else {
            return Err(ApiError::invalid("send the text of the document as `document`"));
        };
        let checked = session.workflows().validate(source, "source").await?;
        let (plan, _) = checked.outcome.map_err(Refusal::InvalidDocument)?;
        let (report, _) = session.dry_run(of, request).await?;
        let parts = html! {
            (graph_parts(&dry_run::graph(&plan, &report), plan.nodes.len()))
            div #dry-result { (dry_run::result(&report)) }
        };
        Ok(Html(parts.into_string()))
    })
    .await
}

/// `POST /workflows/{id}/edit`: the difference between the stored draft, or the current version, and a document.
pub(crate) async fn compare(
    As(session): As,
    Name(reference): Name,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Html<String>, ApiError> {
    run_to_completion(share, async move {
        let workflow = session.reads().workflow(&reference).await?;
        let (stored, _, what) = stored(&session, &workflow).await?;
        let mine = String::from_utf8_lossy(&source);
        let parts = html! {
            div #conflict-difference {
                p.pad.muted { "From the stored source (" (what) ") to yours:" }
                (versions::text(&lines(&stored, &mine)))
            }
        };
        Ok(Html(parts.into_string()))
    })
    .await
}
