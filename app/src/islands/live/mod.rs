//! Keeps the open page current: a picker for how often, a sentence when the connection is lost, and, in the browser, the
//! stream and the exchange of what changed.
//!
//! The stream only says *that* something changed. What changed is then read from the page's own address, as the server
//! would render it for this person now, so there is one way to render, one way to authorise, and no second copy of the
//! state in the browser. Regions that carry `data-live="name"` are brought in line with their namesakes in that answer.

#[cfg(feature = "hydrate")]
mod feed;
#[cfg(feature = "hydrate")]
mod morph;
#[cfg(any(feature = "hydrate", test))]
mod pace;
#[cfg(any(feature = "hydrate", test))]
mod refresh;

use leptos::prelude::*;

/// The page's connection to the server and the refresh picker. `topic` names what the page shows, as `/live?topic=…`
/// understands it.
#[component]
pub fn Live(topic: String) -> impl IntoView {
    // The topic is an attribute and not a property of the island: properties would bring a JSON reader, with all the
    // number formatting that its messages need, into a bundle that needs neither.
    view! {
        <div class="live" data-topic=topic>
            <Feed />
        </div>
    }
}

/// Static markup, brought to life by hand. What this island does is work on the document, so signals would only add their
/// runtime to what every page loads.
///
/// The picker is hidden until the island lives: without script it would do nothing.
#[island]
fn Feed() -> impl IntoView {
    #[cfg(feature = "hydrate")]
    feed::run();

    view! {
        <div class="live-feed">
            <label class="lab" hidden>
                "Refresh "
                <select class="sel">
                    <option value="off">"Off"</option>
                    <option value="2">"2 s"</option>
                    <option value="5">"5 s"</option>
                    <option value="15">"15 s"</option>
                    <option value="60">"60 s"</option>
                    <option value="live" selected>"Live"</option>
                </select>
            </label>
            <span class="live-status" role="status"></span>
        </div>
    }
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;
    use refresh::Refresh;

    /// The picker is written out here and read by `Refresh::parse`.
    #[test]
    fn every_option_of_the_picker_is_understood() {
        let html = Owner::new().with(|| view! { <Live topic="events".to_owned() /> }.to_html());
        let values: Vec<&str> =
            html.split("value=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(values, ["off", "2", "5", "15", "60", "live"]);
        assert!(values.iter().all(|value| Refresh::parse(value).is_some()));
        assert!(html.contains("data-topic=\"events\""));
    }
}
