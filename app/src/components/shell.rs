//! The document around each page: head, bar, freeze banner, menu, main.

use leptos::hydration::HydrationScripts;
use leptos::prelude::*;

use super::{ago, as_of, clock_zone, icon, sprite, text};
use crate::islands::Live;
use crate::model::{Frame, FreezeView, Permission, Stamp};

/// What a page tells the shell about itself.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Before " · sendonce production" in the title.
    pub title: String,
    /// The page has a "Search events" box of its own, so the bar shows none.
    pub own_search: bool,
    /// What the page shows, as the stream of hints names it; the refresh picker is offered. `None` where
    /// nothing changes by itself: such a page loads no bundle.
    pub topic: Option<String>,
}

impl Layout {
    /// A page with the bar's search box and nothing live.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), own_search: false, topic: None }
    }

    /// With live figures under this topic.
    #[must_use]
    pub fn live(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// With a search box of its own.
    #[must_use]
    pub fn own_search(mut self) -> Self {
        self.own_search = true;
        self
    }
}

struct Entry {
    path: &'static str,
    name: &'static str,
    icon: &'static str,
    needs: Permission,
}

const fn entry(
    path: &'static str,
    name: &'static str,
    icon: &'static str,
    needs: Permission,
) -> Entry {
    Entry { path, name, icon, needs }
}

/// The menu, in groups. A new page is one line here.
const MENU: &[(&str, &[Entry])] = &[
    (
        "",
        &[
            entry("/", "Overview", "gauge", Permission::SeeEvents),
            entry("/events", "Events", "list", Permission::SeeEvents),
            entry("/lookup", "Blind look-up", "search", Permission::BlindLookup),
            entry("/unknown", "Unknown", "dispatch_unknown", Permission::SeeEvents),
            entry("/freeze", "Freeze", "frozen", Permission::SeeEvents),
        ],
    ),
    (
        "Health",
        &[
            entry("/slo", "Service level", "gauge", Permission::SeeHealth),
            entry("/alerts", "Alerts", "alert", Permission::SeeHealth),
            entry("/providers", "Providers", "plug", Permission::SeeHealth),
            entry("/policy", "Sending rules", "shield", Permission::SeeHealth),
            entry("/workers", "Workers", "cpu", Permission::SeeHealth),
            entry("/capacity", "Capacity", "gauge", Permission::SeeHealth),
            entry("/runbook", "Runbook", "list", Permission::SeeEvents),
        ],
    ),
    (
        "Audit",
        &[
            entry("/evidence", "Evidence", "shield", Permission::Evidence),
            entry("/log", "Operators’ log", "people", Permission::Evidence),
        ],
    ),
    (
        "Administration",
        &[
            entry("/admin/users", "Users", "people", Permission::Administer),
            entry("/admin/clients", "API clients", "key", Permission::Administer),
            entry("/admin/config", "Configuration", "cog", Permission::Administer),
        ],
    ),
];

/// Whether the menu marks `entry` while `path` is open: the page itself, or one that it leads to.
fn is_current(entry: &str, path: &str) -> bool {
    match entry {
        "/" => path == "/",
        "/events" => {
            path == "/events" || path.starts_with("/events/") || path.starts_with("/sellers/")
        }
        _ => path == entry || path.strip_prefix(entry).is_some_and(|rest| rest.starts_with('/')),
    }
}

/// A complete document without the shell: sign-in, and errors for somebody who is not signed in.
pub fn document(title: String, head: AnyView, body: AnyView) -> AnyView {
    view! {
        <!DOCTYPE html>
        <html lang="en">
            <head>
                <meta charset="utf-8" />
                <meta name="viewport" content="width=device-width, initial-scale=1" />
                <meta name="color-scheme" content="light dark" />
                <meta name="robots" content="noindex, nofollow" />
                <title inner_html=text::raw_text(&title)></title>
                <link rel="icon" href="/favicon.svg" type="image/svg+xml" />
                <link rel="stylesheet" href="/pkg/sendonce.css" />
                // Sets the theme before the first paint, so it may not be deferred.
                <script src="/ui.js"></script>
                {head}
            </head>
            <body>{sprite()} {body}</body>
        </html>
    }
    .into_any()
}

/// A complete page for somebody who is signed in.
pub fn page(frame: Frame, options: LeptosOptions, layout: Layout, content: AnyView) -> AnyView {
    let title = format!("{} · sendonce {}", layout.title, frame.environment);
    let head = match layout.topic {
        Some(_) => view! { <HydrationScripts options=options islands=true /> }.into_any(),
        None => ().into_any(),
    };
    let body = view! {
        <a class="skip" href="#main">"Skip to content"</a>
        {bar(&frame, !layout.own_search)}
        <div data-live="frozen">{banner(&frame.frozen, frame.now)}</div>
        <div class="shell">
            {menu(&frame)}
            <main id="main" tabindex="-1">
                {content}
            </main>
        </div>
    };
    document(title, head, body.into_any())
}

fn bar(frame: &Frame, with_search: bool) -> AnyView {
    let csrf = frame.csrf.clone();
    let search = with_search.then(|| {
        view! {
            // Posted, so that an address typed by mistake is in no URL, history or log.
            <form class="search" role="search" method="post" action="/events">
                {icon("search")}
                <label class="vh" for="q">"Search events"</label>
                <input type="hidden" name="csrf" value=csrf />
                <input
                    id="q" name="q" type="search" placeholder="Event id, seller or qualifier" autocomplete="off"
                    maxlength="512" spellcheck="false" autocapitalize="none" aria-keyshortcuts="/"
                />
                <kbd class="needs-script" aria-hidden="true">"/"</kbd>
            </form>
        }
    });
    view! {
        <header class="top">
            <button class="btn icon menu" type="button" popovertarget="nav" aria-label="Open menu">
                {icon("menu")}
            </button>
            <a class="brand" href="/">{icon("mark")}"sendonce"</a>
            {search}
            <div class="end">
                {environment(&frame.environment)}
                <span class="clock" data-live="clock">{clock_zone(frame.now, frame.now)}</span>
                <button class="btn icon you-open" type="button" popovertarget="you" aria-label="Open your menu">
                    {icon("person")}
                </button>
                <div class="you" id="you" popover="auto">
                    {zone_switch()}
                    <a class="who" href="/account" aria-label=format!(
                        "Your account: {}, {}", frame.operator.email, frame.operator.role.spoken()
                    )>
                        <b title=frame.operator.email.clone()>{frame.operator.email.clone()}</b>
                        " "
                        <span>{frame.operator.role.spoken()}</span>
                    </a>
                    {theme_switch()}
                    <button
                        class="btn icon needs-script" type="button" popovertarget="keys" aria-label="Keyboard shortcuts"
                        aria-keyshortcuts="?"
                    >"?"</button>
                    <form method="post" action="/logout">
                        <input type="hidden" name="csrf" value=frame.csrf.clone() />
                        <button class="btn" type="submit">"Sign out"</button>
                    </form>
                </div>
            </div>
        </header>
        {shortcuts()}
    }
    .into_any()
}

/// The keys that `ui.js` knows, in the order of use. The letter after `g` stands on the link of the menu too.
const GO: &[(&str, &str, &str)] = &[
    ("o", "/", "Overview"),
    ("e", "/events", "Events"),
    ("l", "/lookup", "Blind look-up"),
    ("u", "/unknown", "Unknown outcomes"),
    ("f", "/freeze", "Freeze desk"),
];

fn shortcuts() -> impl IntoView {
    let go = GO
        .iter()
        .map(|(key, _, name)| view! { <dt><kbd>"g"</kbd>" "<kbd>{*key}</kbd></dt><dd>{*name}</dd> })
        .collect_view();
    view! {
        <section class="keys" id="keys" popover="auto" aria-labelledby="keys-h">
            <h2 id="keys-h">"Keyboard shortcuts"</h2>
            <dl>
                <dt><kbd>"/"</kbd></dt><dd>"Search events"</dd>
                {go}
                <dt><kbd>"j"</kbd>" "<kbd>"k"</kbd></dt><dd>"Next and previous row of a list"</dd>
                <dt><kbd>"Enter"</kbd></dt><dd>"Open the row"</dd>
                <dt><kbd>"?"</kbd></dt><dd>"This list"</dd>
                <dt><kbd>"Esc"</kbd></dt><dd>"Close it"</dd>
            </dl>
        </section>
    }
}

/// The head of a page: title, a line below it, when the figures were read, and how often to read again.
pub fn head(title: AnyView, lead: Option<AnyView>, now: Stamp, topic: Option<&str>) -> AnyView {
    let live = topic.map(|topic| view! { <Live topic=topic.to_owned() /> });
    view! {
        <header class="head">
            <div class="named">
                {title}
                {lead.map(|lead| view! { <p class="lead" data-live="lead">{lead}</p> })}
            </div>
            <div class="tools no-print">{as_of(now)}{live}</div>
        </header>
    }
    .into_any()
}

/// The environment by name and colour.
pub(crate) fn environment(name: &str) -> impl IntoView + use<> {
    let name = name.to_owned();
    view! { <span class="env" data-env=name.clone()>{name.clone()}</span> }
}

fn zone_switch() -> impl IntoView {
    view! {
        <fieldset class="seg needs-script">
            <legend class="vh">"Time zone"</legend>
            <label><input type="radio" name="zone" value="utc" checked />"UTC"</label>
            <label><input type="radio" name="zone" value="local" />"Local"</label>
        </fieldset>
    }
}

/// System, light or dark. The switch works by CSS alone; a script only remembers the choice.
pub(crate) fn theme_switch() -> impl IntoView {
    view! {
        <fieldset class="seg">
            <legend class="vh">"Theme"</legend>
            <label title="Follow the system">
                <input type="radio" name="theme" value="system" checked />
                {icon("auto")}
                <span class="vh">"System theme"</span>
            </label>
            <label title="Light">
                <input type="radio" name="theme" value="light" />
                {icon("sun")}
                <span class="vh">"Light theme"</span>
            </label>
            <label title="Dark">
                <input type="radio" name="theme" value="dark" />
                {icon("moon")}
                <span class="vh">"Dark theme"</span>
            </label>
        </fieldset>
    }
}

/// The region that every page shows while anything is frozen.
fn banner(frozen: &[FreezeView], now: Stamp) -> AnyView {
    if frozen.is_empty() {
        return ().into_any();
    }
    let items = frozen
        .iter()
        .map(|view| {
            let freeze = &view.freeze;
            let waiting = text::capped_counted(view.waiting, "event waits", "events wait");
            let review = freeze.review_at.map(|at| {
                if at <= now {
                    view! {
                        <b class="overdue">" Review was due at "{clock_zone(at, now)}", "{ago(at, now)}"."</b>
                    }
                    .into_any()
                } else {
                    view! { " Review at "{clock_zone(at, now)}"." }.into_any()
                }
            });
            view! {
                <li data-key=freeze.scope.clone()>
                    <p>
                        <b>{scope_words(&freeze.scope)}</b>
                        ": no new call is made"
                        {if view.waiting.count == 0 { ".".to_owned() } else { format!("; {waiting}.") }}
                    </p>
                    <p class="by">
                        "Since "{clock_zone(freeze.since, now)}" ("
                        {text::span(now.since(freeze.since))}
                        ") by "<code>{freeze.actor.clone()}</code>": “"{freeze.reason.clone()}"”."{review}
                    </p>
                </li>
            }
        })
        .collect_view();
    view! {
        <section class="frozen" role="region" aria-label="Dispatch frozen">
            {icon("frozen")}
            <div>
                <h2>"Dispatch frozen"</h2>
                <ul>{items}</ul>
            </div>
            <a href="/freeze">"Open freeze desk"</a>
        </section>
    }
    .into_any()
}

/// A scope as a reader says it: `provider post`, `channel sms`, `all dispatch`.
#[must_use]
pub fn scope_words(scope: &str) -> String {
    match scope.split_once(':') {
        Some((kind, name)) => format!("{kind} {name}"),
        None if scope == "all" => "all dispatch".to_owned(),
        None => scope.to_owned(),
    }
}

fn menu(frame: &Frame) -> AnyView {
    let groups = MENU
        .iter()
        .filter_map(|(heading, entries)| {
            let links: Vec<AnyView> = entries
                .iter()
                .filter(|entry| frame.operator.role.may(entry.needs))
                .map(|entry| menu_link(entry, frame))
                .collect();
            (!links.is_empty()).then(|| {
                let heading = (!heading.is_empty()).then(|| view! { <h2>{*heading}</h2> });
                view! { {heading}<ul>{links}</ul> }
            })
        })
        .collect_view();
    view! {
        <nav class="nav" id="nav" popover="auto" aria-label="Main">
            {groups}
            <p class="build">
                "sendonce "{frame.version.clone()}<br />"schema "{frame.schema.clone()}
            </p>
        </nav>
    }
    .into_any()
}

fn menu_link(entry: &Entry, frame: &Frame) -> AnyView {
    let badge = match entry.path {
        "/unknown" if frame.unknown_count.count > 0 => Some(
            view! {
                <span class="n" data-hot="">
                    {text::capped(frame.unknown_count)}<span class="vh">" unresolved"</span>
                </span>
            }
            .into_any(),
        ),
        "/freeze" if !frame.frozen.is_empty() => Some(
            view! { <span class="n" data-cold="">{frame.frozen.len().to_string()}" active"</span> }
                .into_any(),
        ),
        _ => None,
    };
    let current = is_current(entry.path, &frame.path).then_some("page");
    let key = GO.iter().find(|(_, path, _)| *path == entry.path).map(|(key, _, _)| *key);
    view! {
        <li>
            <a href=entry.path aria-current=current data-go=key>
                {icon(entry.icon)}{entry.name}
                <span class="count" data-live=format!("menu:{}", entry.path)>{badge}</span>
            </a>
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_marks_the_page_or_the_one_that_leads_to_it() {
        assert!(is_current("/", "/"));
        assert!(!is_current("/", "/events"));
        assert!(is_current("/events", "/events/0190"));
        assert!(is_current("/events", "/sellers/seller_1042"));
        assert!(!is_current("/freeze", "/freezer"));
        assert!(is_current("/admin/users", "/admin/users"));
    }

    #[test]
    fn scopes_are_spoken() {
        assert_eq!(scope_words("all"), "all dispatch");
        assert_eq!(scope_words("channel:sms"), "channel sms");
        assert_eq!(scope_words("provider:post"), "provider post");
    }
}
