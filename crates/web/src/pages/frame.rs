//! The frame of every page: head, navigation, shortcuts, icons.

use super::Page;
use fermata_core::Timestamp;
use fermata_runtime::{Scope, Session};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The part of the navigation in which a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Runs,
    Workflows,
    Inbox,
    System,
    None,
}

/// What is around the content of a page.
pub(super) struct Frame {
    title: String,
    tab: Tab,
    /// Who is signed in.
    who: Option<String>,
    is_admin: bool,
    has_navigation: bool,
    /// The time of the server, for times that go on.
    now: Timestamp,
    /// How often the page asks for changes, in milliseconds.
    pub poll: Option<u32>,
    /// The stream that says when the page has changed.
    pub stream: Option<String>,
    /// The browser asks for the page again at once.
    pub reload: bool,
}

impl Frame {
    pub fn new(title: impl Into<String>, tab: Tab, session: &Session) -> Frame {
        let caller = session.caller();
        let principal = caller.identity().principal.as_ref();
        let name = principal.map(|principal| {
            let name = principal.display_name.as_ref().unwrap_or(&principal.user_id);
            match caller.tenant() {
                Some(tenant) => format!("{name} · {tenant}"),
                None => name.clone(),
            }
        });
        Frame {
            who: name,
            is_admin: caller.has(Scope::Admin),
            has_navigation: true,
            now: session.now(),
            tab,
            ..Frame::bare(title)
        }
    }

    /// Without navigation: for errors and the sign-in.
    pub fn bare(title: impl Into<String>) -> Frame {
        Frame {
            title: title.into(),
            tab: Tab::None,
            who: None,
            is_admin: false,
            has_navigation: false,
            now: Timestamp(0),
            poll: None,
            stream: None,
            reload: false,
        }
    }

    pub fn page(self, content: Markup) -> Page {
        Page(html! {
            (DOCTYPE)
            html lang="en" data-now=[self.has_navigation.then(|| self.now.millis())] data-poll=[self.poll] data-stream=[self.stream.as_deref()] {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    @if self.reload { meta http-equiv="refresh" content="0"; }
                    title { (self.title) " · Fermata" }
                    link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                    link rel="stylesheet" href="/assets/app.css";
                    link rel="stylesheet" href="/assets/flows.css";
                    script src="/assets/theme.js" {}
                    script type="module" src="/assets/app.js" {}
                }
                body {
                    (PreEscaped(SPRITE))
                    a.skip href="#main" { "Skip to content" }
                    (self.top())
                    p.banner role="status" hidden data-away { "The server cannot be reached. Trying again…" }
                    main #main { (content) }
                    (dialogs())
                }
            }
        })
    }

    fn top(&self) -> Markup {
        let tabs = [
            (Tab::Runs, "/", "Runs"),
            (Tab::Workflows, "/workflows", "Workflows"),
            (Tab::Inbox, "/inbox", "Inbox"),
            (Tab::System, "/system", "System"),
        ];
        let tabs = tabs
            .into_iter()
            .filter(|(tab, ..)| *tab != Tab::System || self.is_admin);
        html! {
            header.top {
                a.brand href="/" { svg width="18" height="18" aria-hidden="true" { use href="#i-fermata"; } "Fermata" }
                @if self.has_navigation {
                    nav aria-label="Main" {
                        @for (tab, to, name) in tabs {
                            a href=(to) aria-current=[(tab == self.tab).then_some("page")] { (name) }
                        }
                    }
                }
                span.grow {}
                @if let Some(who) = &self.who {
                    span.who title=(who) { (who) }
                    button.plain data-sign-out { "Sign out" }
                }
                a.plain.wide href="/docs" { "API" }
                button.plain.js data-theme-toggle aria-label="Light or dark" title="Light or dark" {
                    svg width="16" height="16" aria-hidden="true" { use href="#i-theme"; }
                }
                button.plain.js.wide data-shortcuts aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" { "?" }
            }
        }
    }
}

/// The dialogs that scripts open.
fn dialogs() -> Markup {
    let keys = [
        ("/", "search"),
        ("g r", "runs"),
        ("g w", "workflows"),
        ("g i", "inbox"),
        ("j k", "next, previous"),
        ("Enter", "open"),
        ("Esc", "close"),
        ("t", "light or dark"),
        ("?", "this list"),
    ];
    html! {
        dialog #shortcuts aria-labelledby="shortcuts-title" {
            h2 #shortcuts-title { "Keyboard shortcuts" }
            dl.keys { @for (key, what) in keys { dt { @for key in key.split(' ') { kbd { (key) } " " } } dd { (what) } } }
            form method="dialog" { button.button { "Close" } }
        }
        dialog #confirm aria-labelledby="confirm-title" {
            h2 #confirm-title {}
            p data-text {}
            p.error role="alert" data-error {}
            div.buttons {
                button.button data-no { "Back" }
                button.button.danger data-yes {}
            }
        }
    }
}

/// The icons. A status is a shape, a word and a colour.
const SPRITE: &str = r##"<svg hidden width="0" height="0" aria-hidden="true">
<symbol id="i-fermata" viewBox="0 0 18 18"><path d="M2 12.5a7 7 0 0 1 14 0" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/><circle cx="9" cy="12" r="1.9" fill="currentColor"/></symbol>
<symbol id="i-theme" viewBox="0 0 16 16"><circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor"/></symbol>
<symbol id="i-succeeded" viewBox="0 0 14 14"><circle cx="7" cy="7" r="6.5" fill="currentColor"/><path d="M4 7.2 6.2 9.4 10.2 5" fill="none" stroke="var(--on)" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/></symbol>
<symbol id="i-failed" viewBox="0 0 14 14"><path d="M4.3.5h5.4l3.8 3.8v5.4l-3.8 3.8H4.3L.5 9.7V4.3z" fill="currentColor"/><path d="m4.8 4.8 4.4 4.4m0-4.4L4.8 9.2" stroke="var(--on)" stroke-width="1.6" stroke-linecap="round"/></symbol>
<symbol id="i-running" viewBox="0 0 14 14"><circle cx="7" cy="7" r="5.6" fill="none" stroke="currentColor" stroke-opacity=".3" stroke-width="2"/><path d="M7 1.4A5.6 5.6 0 0 1 12.6 7" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/></symbol>
<symbol id="i-retrying" viewBox="0 0 14 14"><path d="M11.8 4.2A5.6 5.6 0 1 0 12.6 7" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/><path d="M12.4 1v3.6H8.8" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/></symbol>
<symbol id="i-waiting" viewBox="0 0 14 14"><rect x="1" y="1" width="12" height="12" rx="3" fill="none" stroke="currentColor" stroke-width="1.6"/><path d="M5.2 4.5v5m3.6-5v5" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/></symbol>
<symbol id="i-sleeping" viewBox="0 0 14 14"><circle cx="7" cy="7" r="5.8" fill="none" stroke="currentColor" stroke-width="1.6"/><path d="M7 3.8V7l2.2 1.4" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/></symbol>
<symbol id="i-pending" viewBox="0 0 14 14"><circle cx="7" cy="7" r="5.8" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.4 2.15"/></symbol>
<symbol id="i-skipped" viewBox="0 0 14 14"><circle cx="7" cy="7" r="5.8" fill="none" stroke="currentColor" stroke-width="1.4"/><path d="M4.4 7h5.2" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/></symbol>
<symbol id="i-cancelled" viewBox="0 0 14 14"><circle cx="7" cy="7" r="5.8" fill="none" stroke="currentColor" stroke-width="1.6"/><path d="m3.2 10.8 7.6-7.6" stroke="currentColor" stroke-width="1.6"/></symbol>
<symbol id="i-added" viewBox="0 0 14 14"><rect x=".5" y=".5" width="13" height="13" rx="3" fill="currentColor"/><path d="M7 3.8v6.4M3.8 7h6.4" stroke="var(--on)" stroke-width="1.8" stroke-linecap="round"/></symbol>
<symbol id="i-removed" viewBox="0 0 14 14"><circle cx="7" cy="7" r="6.5" fill="currentColor"/><path d="M3.8 7h6.4" stroke="var(--on)" stroke-width="1.8" stroke-linecap="round"/></symbol>
<symbol id="i-changed" viewBox="0 0 14 14"><path d="M7 .6 13.4 7 7 13.4.6 7z" fill="currentColor"/><path d="M4.2 7.6q1.4-1.8 2.8-.6t2.8-.6" fill="none" stroke="var(--on)" stroke-width="1.5" stroke-linecap="round"/></symbol>
</svg>"##;
