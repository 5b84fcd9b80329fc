// Finding things: filters in the URL, paging, the keys, zones, themes, copying.
import { expect, expectLive, test } from "../support/test.js";

test.use({ world: { name: "find" } });

const EVENTS = 120;

test.beforeAll(async ({ api }) => {
  const many = Array.from({ length: EVENTS }, (_, i) =>
    api.admit({ event_id: `ev-many-${String(i).padStart(3, "0")}`, channel: i % 2 ? "email" : "sms", seller_id: "seller_9" }),
  );
  const records = await Promise.all(many);
  await api.expectState(records.at(-1).id, "delivered");
});

const ids = (page) => page.locator("table.events tbody th a").allInnerTexts();

test("filters stand in the URL, survive paging, and Back comes back to them", async ({ as }) => {
  const page = await as("support");
  await page.goto("/events");
  await page.getByRole("combobox", { name: "Channel" }).selectOption("email");
  await page.getByRole("button", { name: "Apply filters" }).click();
  await expect(page).toHaveURL(/channel=email/);
  const first = await ids(page);
  expect(first.length).toBe(50);
  await expect(page.getByRole("navigation", { name: "Pages" })).toContainText("60 events match");

  await page.getByRole("link", { name: "Older" }).click();
  await expect(page).toHaveURL(/channel=email.*cursor=/);
  await expect(page.getByRole("combobox", { name: "Channel" })).toHaveValue("email");
  await expect(page.getByRole("link", { name: "Older" })).toHaveCount(0);
  const second = await ids(page);
  expect(second.length).toBe(10);
  expect(new Set([...first, ...second]).size, "each one is on one page").toBe(60);

  // The bookmark works, and so does the way back.
  await page.reload();
  expect(await ids(page)).toEqual(second);
  await page.getByRole("link", { name: second[0], exact: true }).click();
  await expect(page).toHaveURL(/\/events\/[0-9a-f-]{36}$/);
  await page.goBack();
  await expect(page).toHaveURL(/channel=email.*cursor=/);
  await page.goBack();
  await expect(page).toHaveURL(/channel=email$|channel=email&/);
  await expect(page.getByRole("combobox", { name: "Channel" })).toHaveValue("email");
  expect(await ids(page)).toEqual(first);
});

test("search and filters go together, and each can be taken off", async ({ as }) => {
  const page = await as("support");
  await page.goto("/events?channel=sms");
  await page.getByLabel("Search events").fill("ev-many-01");
  await page.getByLabel("Search events").press("Enter");
  await expect(page).toHaveURL("/events?q=ev-many-01&channel=sms");
  expect((await ids(page)).sort()).toEqual(["010", "012", "014", "016", "018"].map((n) => `ev-many-${n}`));
  await page.getByRole("link", { name: "Remove filter channel" }).click();
  await expect(page).toHaveURL("/events?q=ev-many-01");
  expect((await ids(page)).length).toBe(10);
  await page.getByLabel("Search events").fill("state:sending ev-many-011");
  await page.getByLabel("Search events").press("Enter");
  await expect(page.getByRole("alert")).toContainText("state: has no value");
  expect(await ids(page)).toEqual(["ev-many-011"]);
  await page.goto("/events?q=ev-none");
  await expect(page.getByRole("main")).toContainText("Nothing that is kept matches “ev-none”");
});

test("a seller's history is paged too", async ({ as }) => {
  const page = await as("support");
  await page.goto("/sellers/seller_9");
  await expect(page.getByRole("navigation", { name: "Pages" })).toContainText("120 requests");
  await page.getByRole("link", { name: "Older" }).click();
  await page.getByRole("link", { name: "Older" }).click();
  await expect(page.getByRole("row", { name: /ev-many-/ })).toHaveCount(20);
  await page.getByRole("link", { name: "Newest" }).click();
  await expect(page).toHaveURL("/sellers/seller_9");
});

test("the slash goes to the search box, but not out of a field", async ({ as }) => {
  const page = await as("support");
  for (const path of ["/", "/events"]) {
    await page.goto(path);
    await page.keyboard.press("/");
    await expect(page.getByLabel("Search events")).toBeFocused();
    await expect(page.getByLabel("Search events")).toHaveValue("");
    await page.keyboard.type("a/b");
    await expect(page.getByLabel("Search events")).toHaveValue("a/b");
  }
});

test("the zone switch prints its zone, everywhere, and is remembered", async ({ as }) => {
  const page = await as("support", { timezoneId: "Europe/Berlin" });
  await page.goto("/events?q=ev-many-001");
  await page.getByRole("link", { name: "ev-many-001", exact: true }).click();
  const row = page.locator("#fact-1 time").first();
  const utc = await row.innerText();
  await expect(page.locator(".asof")).toContainText("UTC");
  await page.getByText("Local", { exact: true }).click();
  await expect(page.getByRole("radio", { name: "Local" })).toBeChecked();
  await expect(row).not.toHaveText(utc);
  const instant = new Date(await row.getAttribute("datetime"));
  const local = instant.toLocaleTimeString("en-GB", { timeZone: "Europe/Berlin" });
  await expect(row).toContainText(local);
  await expect(row).toHaveAttribute("title", /UTC$/);
  const zones = await page.locator("[data-zone]").allInnerTexts();
  expect(zones.length).toBeGreaterThan(3);
  expect(new Set(zones).size).toBe(1);
  expect(zones[0]).toMatch(/CET|CEST|GMT\+[12]/);

  // Still so after a refresh of the page by itself and after the next load.
  await expectLive(page);
  const before = await page.locator("time[data-asof]").getAttribute("datetime");
  await page.getByLabel("Refresh").selectOption("2 s");
  await expect(page.locator("time[data-asof]")).not.toHaveAttribute("datetime", before);
  expect(new Set(await page.locator("[data-zone]").allInnerTexts())).toEqual(new Set([zones[0]]));
  await expect(row).toContainText(local);
  await page.goto("/events");
  expect(new Set(await page.locator("[data-zone]").allInnerTexts())).toEqual(new Set([zones[0]]));
  await page.getByText("UTC", { exact: true }).first().click();
});

test("the theme is remembered", async ({ as }) => {
  const page = await as("support", { colorScheme: "light" });
  await page.goto("/");
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole("radio", { name: "Dark theme" }).check({ force: true });
  await expect.poll(background).not.toBe(light);
  const dark = await background();
  await page.goto("/events");
  expect(await background()).toBe(dark);
  await expect(page.getByRole("radio", { name: "Dark theme" })).toBeChecked();
  await page.getByRole("radio", { name: "System theme" }).check({ force: true });
  await expect.poll(background).toBe(light);
  await page.emulateMedia({ colorScheme: "dark" });
  await expect.poll(background).toBe(dark);
});

test("copying works where the browser gives no clipboard", async ({ as }) => {
  const page = await as("support");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.addInitScript(() => {
    window.readClipboard = () => Navigator.prototype.__clipboard.readText();
    const found = Object.getOwnPropertyDescriptor(Navigator.prototype, "clipboard");
    Object.defineProperty(Navigator.prototype, "__clipboard", { get: () => found.get.call(navigator) });
    Object.defineProperty(Navigator.prototype, "clipboard", { get: () => undefined });
  });
  await page.goto("/events?q=ev-many-007");
  const button = page.getByRole("button", { name: "Copy event id ev-many-007" });
  await button.click();
  await expect(page.getByRole("status").filter({ hasText: "Copied" })).toHaveCount(1);
  await expect.poll(() => page.evaluate(() => window.readClipboard())).toBe("ev-many-007");

  // Where even that is refused, the text is selected, one key away.
  await page.evaluate(() => (document.execCommand = () => false));
  await button.click();
  await expect(page.getByRole("status").filter({ hasText: "Selected, not copied" })).toHaveCount(1);
  expect(await page.evaluate(() => String(getSelection()))).toBe("ev-many-007");
});
