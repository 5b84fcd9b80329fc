// Small comforts of every page: theme, time zone, ages that count, copy buttons, keys, saved views. Pages are complete
// without it. Loaded without `defer`, because the theme has to be known before the first paint.
(function () {
  "use strict";
  const root = document.documentElement;

  function remembered(name, otherwise) {
    try {
      return localStorage.getItem("sendonce-" + name) || otherwise;
    } catch {
      return otherwise; // storage is off: the choice lasts as long as the page
    }
  }

  function remember(name, value) {
    try {
      localStorage.setItem("sendonce-" + name, value);
    } catch {
      // as above
    }
  }

  // Radio buttons called `name` show `value` and hand each choice to `choose`.
  function choice(name, value, choose) {
    for (const radio of document.querySelectorAll('input[name="' + name + '"]')) {
      radio.checked = radio.value === value;
      radio.addEventListener("change", () => {
        remember(name, radio.value);
        choose(radio.value);
      });
    }
  }

  // --- theme ---

  function setTheme(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }
  const theme = remembered("theme", "system");
  setTheme(theme);

  // --- times ---
  //
  // The server writes UTC into `<time datetime data-time="form">`, and the zone into `[data-zone]` beside it. The exact
  // UTC instant stays in the title, whatever zone is shown.

  let zone = remembered("zone", "utc") === "local" ? "local" : "utc";
  // How far the server's clock is ahead of ours: ages are counted by the clock that wrote the instants.
  let ahead = 0;

  const two = (n) => String(n).padStart(2, "0");

  function parts(at) {
    if (zone === "utc") {
      const iso = at.toISOString();
      return { day: iso.slice(0, 10), clock: iso.slice(11, 19), millis: iso.slice(19, 23) };
    }
    return {
      day: at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()),
      clock: two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds()),
      millis: "." + String(at.getMilliseconds()).padStart(3, "0"),
    };
  }

  // The same words as the server's.
  function relative(at, now) {
    const seconds = Math.trunc((now - at) / 1000);
    const total = Math.abs(seconds);
    if (total === 0) return "now";
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => total >= size);
    const span = Math.floor(total / size) + " " + unit;
    return seconds > 0 ? span + " ago" : "in " + span;
  }

  function worded(time, now) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) return null;
    const { day, clock, millis } = parts(at);
    switch (time.dataset.time) {
      case "ago":
        return relative(at, now);
      case "day":
        return day;
      case "full":
        return day + " " + clock;
      case "millis":
        return clock + millis;
      case "clock":
        // Today in UTC may be yesterday here.
        return day === parts(new Date(now)).day ? clock : day + " " + clock;
      default:
        return null;
    }
  }

  const serverNow = () => Date.now() + ahead;

  function write(element, text) {
    if (text !== null && element.textContent !== text) element.textContent = text;
  }

  function zoneName() {
    if (zone === "utc") return "UTC";
    const named = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(new Date());
    return named.find((part) => part.type === "timeZoneName").value;
  }

  function writeTimes() {
    const now = serverNow();
    for (const time of document.querySelectorAll("time[data-time]")) write(time, worded(time, now));
    const name = zoneName();
    for (const element of document.querySelectorAll("[data-zone]")) write(element, name);
  }

  function tick() {
    if (document.hidden) return;
    const now = serverNow();
    for (const time of document.querySelectorAll('time[data-time="ago"]')) write(time, worded(time, now));
  }

  // The page says when it was rendered; called right after it arrived.
  function setClock() {
    const stamp = document.querySelector("time[data-asof]");
    const at = stamp ? Date.parse(stamp.dateTime) : NaN;
    if (!isNaN(at)) ahead = at - Date.now();
  }

  // --- copy ---

  let copied = null;

  // Without https there is no clipboard interface, except on this machine's own addresses.
  function copyByHand(text) {
    const field = document.createElement("textarea");
    field.value = text;
    field.readOnly = true;
    field.className = "vh";
    document.body.append(field);
    const focused = document.activeElement;
    field.select();
    let done = false;
    try {
      done = document.execCommand("copy");
    } catch {
      done = false;
    }
    field.remove();
    if (focused) focused.focus();
    return done;
  }

  // Where nothing may copy, the text is selected, one key away from it.
  function selectBeside(button) {
    const text = button.parentElement && button.parentElement.querySelector("code");
    if (text) getSelection().selectAllChildren(text);
  }

  async function copy(button) {
    const text = button.dataset.copy;
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      done = copyByHand(text);
    }
    if (!done) selectBeside(button);
    if (copied) {
      copied.textContent = "";
      copied.textContent = done ? "Copied" : "Selected, not copied";
    }
    if (!done) return;
    button.dataset.copied = "";
    setTimeout(() => delete button.dataset.copied, 1500);
  }

  addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("[data-copy]");
    if (button) copy(button);
  });

  // --- keys: "/" to the search box, "?" for the list of them, "g" and a letter to a page, "j" and "k" through rows ---

  const GO_MS = 1500;
  let goUntil = 0;

  function step(by) {
    const links = [...document.querySelectorAll("main tbody th a[href]")];
    if (links.length === 0) return false;
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    return true;
  }

  function search() {
    const box = document.querySelector('main input[type="search"]') || document.querySelector('input[type="search"]');
    if (!box) return false;
    box.focus();
    box.select();
    return true;
  }

  function help() {
    const sheet = document.getElementById("keys");
    if (!sheet || !sheet.togglePopover) return false;
    sheet.togglePopover();
    return true;
  }

  function go(letter) {
    const link = document.querySelector('[data-go="' + CSS.escape(letter) + '"]');
    if (link) location.assign(link.href);
    return link !== null;
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest && event.target.closest("input, textarea, select, [contenteditable]")) return;
    const isGo = Date.now() < goUntil;
    goUntil = 0;
    let done = false;
    if (isGo) done = go(event.key);
    else if (event.key === "/") done = search();
    else if (event.key === "?") done = help();
    else if (event.key === "j") done = step(1);
    else if (event.key === "k") done = step(-1);
    else if (event.key === "g") goUntil = Date.now() + GO_MS;
    if (done) event.preventDefault();
  });

  // --- saved views: name and address, in this browser alone. The server lets no address or number into the address. ---

  const VIEWS_MAX = 20;

  function savedViews() {
    try {
      const views = JSON.parse(remembered("views", "[]"));
      const isView = (view) => typeof view.name === "string" && /^\/events\?/.test(view.href);
      return Array.isArray(views) ? views.filter(isView).slice(0, VIEWS_MAX) : [];
    } catch {
      return [];
    }
  }

  function showViews() {
    const list = document.querySelector("[data-views]");
    if (!list) return;
    for (const item of list.querySelectorAll("[data-saved]")) item.remove();
    const here = location.pathname + location.search;
    for (const view of savedViews()) {
      const item = document.createElement("li");
      item.dataset.saved = "";
      const link = document.createElement("a");
      link.href = view.href;
      link.textContent = view.name;
      if (view.href === here) link.setAttribute("aria-current", "true");
      const forget = document.createElement("button");
      forget.type = "button";
      forget.className = "copy";
      forget.textContent = "\u00d7";
      forget.setAttribute("aria-label", "Forget view " + view.name);
      forget.addEventListener("click", () => {
        remember("views", JSON.stringify(savedViews().filter((other) => other.href !== view.href)));
        showViews();
      });
      item.append(link, forget);
      list.append(item);
    }
  }

  // Named after its filters, as the page words them: nothing has to be typed at two in the morning.
  function saveView() {
    const words = [...document.querySelectorAll(".chips code")].map((code) => code.textContent);
    const view = { name: words.join(", ").slice(0, 60) || "View", href: location.pathname + location.search };
    const others = savedViews().filter((other) => other.href !== view.href);
    remember("views", JSON.stringify([view, ...others].slice(0, VIEWS_MAX)));
    showViews();
  }

  addEventListener("DOMContentLoaded", () => {
    choice("theme", theme, setTheme);
    choice("zone", zone, (value) => {
      zone = value;
      writeTimes();
    });
    copied = document.createElement("p");
    copied.className = "vh";
    copied.setAttribute("role", "status");
    document.body.append(copied);

    showViews();
    const save = document.querySelector("[data-save-view]");
    if (save) save.addEventListener("click", saveView);

    setClock();
    if (zone !== "utc") writeTimes();
    setInterval(tick, 1000);
  });

  // The live island has brought in newer rows.
  document.addEventListener("sendonce:updated", () => {
    setClock();
    writeTimes();
  });
})();
