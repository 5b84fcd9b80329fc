// What is open on the screen keeps itself current, and stays where the person left it.
import { expect, expectLive, test } from "../support/test.js";

test.use({ world: { name: "live" } });

test.afterEach(async ({ api }) => {
  await api.unfreeze("channel:sms");
  await api.provider({});
});

test("an open event goes accepted, sent, delivered by itself; what is unfolded and focused stays", async ({ as, api }) => {
  await api.freeze("channel:sms", "held for the test");
  await api.provider({ deliver_after_ms: 2_500 });
  const event = await api.admit({ seller_id: "seller_3" });

  const page = await as("support");
  const stream = page.waitForRequest((request) => new URL(request.url()).pathname === "/live");
  const loads = [];
  page.on("framenavigated", (frame) => loads.push(frame.url()));
  await page.goto(`/events/${event.id}`);
  await stream;
  await expectLive(page);
  const state = page.getByRole("region", { name: "State" });
  await expect(state.locator(".now .state").first()).toHaveText("accepted");

  const fold = page.locator("#fact-1 details");
  await fold.locator("summary").click();
  await expect(fold).toHaveAttribute("open", "");
  const focused = page.getByRole("link", { name: "Link to fact 1", exact: true });
  await focused.focus();
  const attempts = page.getByRole("region", { name: "Attempts" });
  await expect(attempts).toContainText("None yet");

  await api.unfreeze("channel:sms");
  await expect(state.locator(".now .state").first()).toHaveText("sent");
  await expect(page.getByRole("region", { name: "Duplicate proof" })).toContainText("taken by the provider");
  await expect(state.locator(".now .state").first()).toHaveText("delivered", { timeout: 10_000 });
  await expect(page.getByRole("region", { name: "Answer for support" })).toContainText(/deliver/i);
  await expect(attempts).toContainText("Attempt 1");

  await expect(fold).toHaveAttribute("open", "");
  await expect(focused).toBeFocused();
  expect(loads.length, "the page was never loaded again").toBe(1);
});

test("Off pauses it, and picking a pace again catches up; the choice is remembered", async ({ as, api }) => {
  const page = await as("support");
  await page.goto("/events");
  await expectLive(page);
  await page.getByLabel("Refresh").selectOption("Off");
  let reads = 0;
  page.on("request", () => (reads += 1));
  const event = await api.admit();
  // Another page that is live sees it; by then this one would have too.
  const other = await page.context().newPage();
  await other.goto("/events");
  await expect(other.getByLabel("Refresh"), "the choice holds for every page of this browser").toHaveValue("off");
  await other.getByLabel("Refresh").selectOption("Live");
  await expect(other.getByRole("link", { name: event.event_id, exact: true })).toBeVisible();
  const late = await api.admit();
  await expect(other.getByRole("link", { name: "1 new" })).toBeVisible();
  await other.close();
  await page.bringToFront();
  await expect(page.getByRole("link", { name: event.event_id, exact: true })).toHaveCount(0);
  expect(reads).toBe(0);

  await page.getByLabel("Refresh").selectOption("2 s");
  await expect(page.getByRole("link", { name: "2 new" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("link", { name: late.event_id, exact: true })).toBeVisible();
  await expect(page.getByLabel("Refresh")).toHaveValue("2");
});

test("rows stay where they are, current and focused, while new ones wait to be asked for", async ({ as, api }) => {
  await api.freeze("channel:sms", "held for the test");
  const first = await api.admit();
  const page = await as("support");
  await page.goto("/events");
  await expectLive(page);
  const link = page.getByRole("link", { name: first.event_id, exact: true });
  await link.focus();
  const row = page.getByRole("row").filter({ has: link });
  await expect(row).toContainText("held by a freeze");
  const pill = page.getByRole("link", { name: /^\d+ new$/ });
  await expect(pill).toBeHidden();
  const place = await row.boundingBox();
  const later = [await api.admit(), await api.admit()];
  await expect(pill).toHaveText("2 new");
  expect(await row.boundingBox()).toEqual(place);
  await api.unfreeze("channel:sms");
  await expect(row).toContainText("delivered", { timeout: 15_000 });
  await expect(link).toBeFocused();

  await pill.click();
  for (const { event_id } of later) await expect(page.getByRole("link", { name: event_id, exact: true })).toBeVisible();
  await expect(pill).toBeHidden();
});

test.describe("when the server goes away", () => {
  test.use({ expectedComplaints: /ERR_|Failed to load resource/ });

  test("the page says so and since when, and recovers by itself", async ({ as, api }) => {
    const page = await as("support");
    await page.goto("/events");
    await expectLive(page);
    await page.getByLabel("Refresh").selectOption("2 s");
    await page.context().setOffline(true);
    await expect(page.getByText(/connection lost, showing data from \d\d:\d\d:\d\d UTC/)).toBeVisible();
    await page.context().setOffline(false);
    await expect(page.getByText(/connection lost/)).toBeHidden({ timeout: 12_000 });
    await api.admit();
    await expect(page.getByRole("link", { name: "1 new" })).toBeVisible();
  });
});
