// A day in support: somebody calls and asks where the message is.
import { expect, expectLive, test } from "../support/test.js";

// 403 and 422 are in the console of every browser.
test.use({ world: { name: "support" }, expectedComplaints: /status of (403|422)/ });

test("finds an event, reads out the answer, copies it, and sees what the seller asked for before", async ({ as, api }) => {
  const earlier = await api.admit({ seller_id: "seller_1042", request_window: "2026-03-14T01" });
  const event = await api.admit({ seller_id: "seller_1042", request_window: "2026-03-14T02" });
  await api.expectState(event.id, "delivered");
  await api.expectState(earlier.id, "delivered");

  const page = await as("support");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto("/");
  await page.getByLabel("Search events").fill(event.event_id);
  await page.getByLabel("Search events").press("Enter");
  await expect(page).toHaveURL(`/events?q=${event.event_id}`);
  await page.getByRole("link", { name: event.event_id, exact: true }).click();
  await expect(page).toHaveURL(`/events/${event.id}`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveAccessibleName(new RegExp(event.event_id));
  await expect(page.getByRole("heading", { level: 1 })).toHaveAccessibleName(new RegExp(event.id));
  for (const name of ["Timeline", "Attempts", "Answer for support", "Duplicate proof"]) {
    await expect(page.getByRole("region", { name, exact: true })).toBeVisible();
  }

  const answer = page.getByRole("region", { name: "Answer for support" });
  const words = await answer.getByRole("blockquote").innerText();
  expect(words.length).toBeGreaterThan(40);
  expect(words).not.toMatch(/@|\+\d{8}|https?:/);
  await answer.getByRole("button", { name: "Copy answer" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(words);

  await page.getByRole("link", { name: "seller_1042" }).first().click();
  await expect(page).toHaveURL("/sellers/seller_1042");
  await expect(page.getByRole("link", { name: event.event_id, exact: true })).toBeVisible();
  await expect(page.getByRole("link", { name: earlier.event_id, exact: true })).toBeVisible();
  await expect(page.getByRole("region", { name: "Window 2026-03-14T02" })).toBeVisible();
});

test("sees what is frozen but has no button for it, and learns who may", async ({ as }) => {
  const page = await as("support");
  await page.goto("/freeze");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Freeze desk");
  await expect(page.getByRole("button", { name: /Freeze dispatch|Reopen dispatch/ })).toHaveCount(0);
  await expect(page.getByRole("main")).toContainText("Only the roles on-call and admin may do this.");
});

test("is told which role may see the users", async ({ as }) => {
  const page = await as("support");
  await page.goto("/");
  await expect(page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Users" })).toHaveCount(0);
  const response = await page.goto("/admin/users");
  expect(response.status()).toBe(403);
  await expect(page.getByRole("main")).toContainText("Only the role admin may do this.");
});

test("a post that the page does not offer is refused too", async ({ as }) => {
  const page = await as("support");
  await page.goto("/freeze");
  const csrf = await page.locator('input[name="csrf"]').first().inputValue();
  const response = await page.request.post("/freeze", {
    form: { csrf, act: "freeze", scope: "channel:sms", reason: "by hand", action_key: "0123456789abcdef0123" },
  });
  expect(response.status()).toBe(403);
});

test("an address typed into the box is not searched and never reaches a URL", async ({ as }) => {
  const page = await as("support");
  const seen = [];
  page.on("request", (request) => seen.push(request.url()));
  for (const typed of ["user@example.com", "+1 202 555 0123"]) {
    await page.goto("/events");
    await page.getByLabel("Search events").fill(typed);
    await page.getByLabel("Search events").press("Enter");
    await expect(page.getByRole("alert")).toContainText("looks like an email address or phone number");
    await expect(page).toHaveURL("/events");
    expect(await page.content()).not.toContain(typed);
  }
  expect(seen.filter((url) => /example\.com|555/.test(decodeURIComponent(url)))).toEqual([]);
});

test("a page that is not there, and an event that is not there", async ({ as }) => {
  const page = await as("support");
  for (const path of ["/events/0190a1b2-0000-7000-8000-000000000000", "/nowhere"]) {
    const response = await page.request.get(path);
    expect(response.status()).toBe(404);
    expect(await response.text()).toContain("There is no such page");
  }
});

test("the pages are live for support too", async ({ as }) => {
  const page = await as("support");
  await page.goto("/unknown");
  await expectLive(page);
  await expect(page.getByText("Every outcome is known")).toBeVisible();
});
