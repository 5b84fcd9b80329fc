//! Brings the page in line with a fresh rendering of it, node by node, so that what the person is doing survives: focus,
//! selection, scroll position, an opened `<details>`, a half-typed field.

use std::collections::HashMap;

use wasm_bindgen::JsCast;
use web_sys::{Document, Element, Node};

/// Every `data-live` region of `page` that `fresh` also has. A region that appears only when something happens (a banner)
/// needs an element that is always there; its content may be empty.
pub fn follow(page: &Document, fresh: &Document) {
    let mut regions = HashMap::new();
    for region in elements(fresh, "[data-live]") {
        regions.insert(region.get_attribute("data-live"), region);
    }
    for region in elements(page, "[data-live]") {
        if let Some(fresh) = regions.get(&region.get_attribute("data-live")) {
            node(page, &region, fresh);
        }
    }
}

fn elements(document: &Document, selector: &str) -> Vec<Element> {
    let Ok(list) = document.query_selector_all(selector) else {
        return Vec::new();
    };
    (0..list.length()).filter_map(|i| list.item(i)?.dyn_into().ok()).collect()
}

fn key(node: &Node) -> Option<String> {
    node.dyn_ref::<Element>()?.get_attribute("data-key")
}

fn is_same_kind(old: &Node, new: &Node) -> bool {
    old.node_type() == new.node_type() && old.node_name() == new.node_name()
}

fn copy(page: &Document, new: &Node) -> Option<Node> {
    page.import_node_with_deep(new, true).ok()
}

/// `old` and `new` are of the same kind.
fn node(page: &Document, old: &Node, new: &Node) {
    if old.is_equal_node(Some(new)) {
        return;
    }
    let (Some(old), Some(new)) = (old.dyn_ref::<Element>(), new.dyn_ref::<Element>()) else {
        old.set_node_value(new.node_value().as_deref());
        return;
    };
    match old.tag_name().as_str() {
        // An island that runs owns what is inside it.
        "LEPTOS-ISLAND" => return,
        // Its text may be in the person's own time zone by now. The same instant needs no new text.
        "TIME" if old.get_attribute("datetime") == new.get_attribute("datetime") => return,
        "INPUT" | "SELECT" | "TEXTAREA" if is_active(page, old) => return,
        _ => {}
    }
    attributes(old, new);
    children(page, old, new);
}

fn is_active(page: &Document, element: &Element) -> bool {
    page.active_element().is_some_and(|active| active.is_same_node(Some(element)))
}

fn attributes(old: &Element, new: &Element) {
    for name in new.get_attribute_names() {
        let Some(name) = name.as_string() else {
            continue;
        };
        let value = new.get_attribute(&name);
        if old.get_attribute(&name) != value {
            // The parser accepts names that this call refuses; such an attribute is nothing of ours.
            let _ = old.set_attribute(&name, &value.unwrap_or_default());
        }
    }
    for name in old.get_attribute_names() {
        let Some(name) = name.as_string() else {
            continue;
        };
        // Whether a disclosure is open is the person's choice after the page has loaded.
        if name != "open" && !new.has_attribute(&name) {
            let _ = old.remove_attribute(&name);
        }
    }
}

fn children(page: &Document, old: &Node, new: &Node) {
    if old.dyn_ref::<Element>().is_some_and(|element| element.has_attribute("data-hold")) {
        held(page, old, new);
        return;
    }
    let wanted: Vec<Node> = list(new);
    let keys: HashMap<String, ()> = wanted.iter().filter_map(|n| Some((key(n)?, ()))).collect();
    let mut kept = HashMap::new();
    for child in list(old) {
        if let Some(key) = key(&child) {
            // Gone rows leave first, so that the rows that stay are already in order and are not moved: a moved element
            // loses focus.
            if keys.contains_key(&key) {
                kept.insert(key, child);
            } else {
                let _ = old.remove_child(&child);
            }
        }
    }

    let mut cursor = old.first_child();
    for want in &wanted {
        let have = match key(want) {
            Some(key) => kept.remove(&key).filter(|have| is_same_kind(have, want)),
            None => cursor.clone().filter(|have| key(have).is_none() && is_same_kind(have, want)),
        };
        match have {
            Some(have) => {
                if cursor.as_ref().is_some_and(|c| c.is_same_node(Some(&have))) {
                    cursor = have.next_sibling();
                } else {
                    let _ = old.insert_before(&have, cursor.as_ref());
                }
                node(page, &have, want);
            }
            None => {
                if let Some(fresh) = copy(page, want) {
                    let _ = old.insert_before(&fresh, cursor.as_ref());
                }
            }
        }
    }
    while let Some(rest) = cursor {
        cursor = rest.next_sibling();
        let _ = old.remove_child(&rest);
    }
}

/// A list whose rows stay where they are (`data-hold`), so that nobody clicks a row that has just moved away: rows that
/// would come in between wait, and `[data-new]` says how many; it leads to the page with them. All rows are keyed.
fn held(page: &Document, old: &Node, new: &Node) {
    let rows = list(old);
    let shown: Vec<Option<String>> = rows.iter().map(key).collect();
    let mut fresh: HashMap<String, Node> = HashMap::new();
    let (mut waiting, mut after_last) = (0, Vec::new());
    for row in list(new) {
        let key = key(&row);
        if shown.contains(&key) {
            waiting += after_last.len();
            after_last.clear();
            fresh.extend(key.map(|key| (key, row)));
        } else {
            after_last.push(row);
        }
    }
    let is_replaced = fresh.is_empty();
    if is_replaced {
        waiting += after_last.len();
    }
    // As many rows as came in were pushed off the end of the page: they are still what this page shows. Rows that are
    // gone for another reason (they do not match any more) leave.
    let mut may_stay = waiting;
    for (row, key) in rows.iter().zip(&shown).rev() {
        match key.as_ref().and_then(|key| fresh.get(key)) {
            Some(want) => {
                may_stay = 0;
                node(page, row, want);
            }
            None if may_stay > 0 => may_stay -= 1,
            None => {
                let _ = old.remove_child(row);
            }
        }
    }
    // At the end nothing is moved by what is added.
    if !is_replaced && waiting == 0 {
        for row in &after_last {
            if let Some(row) = copy(page, row) {
                let _ = old.append_child(&row);
            }
        }
    }
    if let Ok(Some(pill)) = page.query_selector("[data-new]") {
        let _ = pill.toggle_attribute_with_force("hidden", waiting == 0);
        pill.set_text_content(Some(&format!("{waiting} new")));
    }
}

fn list(parent: &Node) -> Vec<Node> {
    let children = parent.child_nodes();
    (0..children.length()).filter_map(|i| children.item(i)).collect()
}
