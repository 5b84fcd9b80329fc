// A night on call: a provider does not answer, dispatch is frozen, and later reopened.
import { banner, expect, expectLive, test } from "../support/test.js";

test.use({ world: { name: "oncall" }, expectedComplaints: /status of (403|422)/ });
test.describe.configure({ mode: "serial" });

test.afterEach(async ({ api }) => {
  for (const { scope } of await api.freezes()) await api.unfreeze(scope);
  await api.provider({});
});

test("watches an unknown outcome until it is read", async ({ as, api }) => {
  const page = await as("oncall");
  await page.goto("/unknown");
  await expectLive(page);
  await expect(page.getByText("Every outcome is known")).toBeVisible();

  const event = await api.admitUnknown({ seller_id: "seller_7" });
  const board = page.getByRole("region", { name: "demo" });
  await expect(board.getByRole("link", { name: event.event_id })).toBeVisible();
  await expect(board).toContainText("timeout");
  await expect(page.getByRole("navigation", { name: "Main" })).toContainText("1 unresolved");
  const record = await api.event(event.id);
  expect([record.state, record.calls]).toEqual(["dispatch_unknown", 1]);

  // The provider can be read again: it leaves the board by itself, after one call.
  await api.provider({});
  await expect(page.getByText("Every outcome is known")).toBeVisible({ timeout: 15_000 });
  await api.expectState(event.id, "delivered");
  expect((await api.event(event.id)).calls).toBe(1);
});

test("freezes a channel, and everybody sees it at once; reopens, and what waited goes on", async ({ as, api }) => {
  const page = await as("oncall");
  const other = await as("support");
  await other.goto("/events");
  await expectLive(other);
  await expect(banner(other)).toHaveCount(0);

  await page.goto("/freeze");
  await expect(page.getByText("Nothing is frozen")).toBeVisible();
  await page.getByRole("radio", { name: "channel:sms" }).check();
  await page.getByLabel("Reason", { exact: true }).fill("Messages do not arrive, INC-2291");
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(page.getByRole("status").filter({ hasText: "Frozen: channel sms." })).toBeVisible();
  await expect(banner(page)).toContainText("channel sms");
  await expect(banner(page)).toContainText("Messages do not arrive, INC-2291");

  // In the other browser, without a reload, within a second.
  await expect(banner(other)).toContainText("Messages do not arrive, INC-2291", { timeout: 1_000 });

  // What comes in now waits, and no call is made for it.
  const event = await api.admit({ seller_id: "seller_8" });
  for (const path of ["/", "/events", `/events/${event.id}`, "/sellers/seller_8", "/unknown", "/providers", "/workers"]) {
    await page.goto(path);
    await expect(banner(page), path).toContainText("channel sms");
  }
  const record = await api.event(event.id);
  expect([record.state, record.calls, record.frozen]).toEqual(["accepted", 0, true]);
  await page.goto(`/events/${event.id}`);
  await expectLive(page);
  await expect(page.getByRole("region", { name: "State" })).toContainText("held by a freeze");

  await other.goto(`/events/${event.id}`);
  await expectLive(other);
  await page.goto("/freeze");
  await expect(page.getByRole("main")).toContainText("1 event is released");
  await page.getByLabel("Reason for reopening").fill("The carrier says that it is mended");
  await page.getByRole("button", { name: "Reopen dispatch" }).click();
  await expect(page.getByRole("status").filter({ hasText: "Reopened: channel sms." })).toBeVisible();
  await expect(banner(page)).toHaveCount(0);
  await expect(banner(other)).toHaveCount(0, { timeout: 2_000 });
  await expect(other.getByRole("region", { name: "State" })).toContainText("delivered", { timeout: 10_000 });
  expect((await api.event(event.id)).calls).toBe(1);
});

test("freezing everything asks for the word, and keeps what was typed", async ({ as, api }) => {
  const page = await as("oncall");
  await page.goto("/freeze");
  const confirm = page.getByLabel("Type “all” to freeze everything");
  await expect(confirm).toBeHidden();
  await page.getByRole("radio", { name: "Every channel and provider" }).check();
  await expect(confirm).toBeVisible();
  await page.getByLabel("Reason", { exact: true }).fill("Both carriers, INC-1");
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(page.getByRole("alert")).toContainText("Nothing was done");
  await expect(page.getByText("Type the word all to freeze everything.")).toBeVisible();
  await expect(page.getByLabel("Reason", { exact: true })).toHaveValue("Both carriers, INC-1");
  await expect(banner(page)).toHaveCount(0);
  await confirm.fill("all");
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(banner(page)).toContainText("all dispatch");
  await page.goto("/");
  await expect(page.getByRole("main")).toContainText("All dispatch is frozen.");
  expect((await api.freezes()).map(({ scope }) => scope)).toEqual(["all"]);
});

test("a reason with somebody's number is refused", async ({ as }) => {
  const page = await as("oncall");
  await page.goto("/freeze");
  await page.getByLabel("Reason", { exact: true }).fill("call +1 202 555 0123 about it");
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(page.getByText("looks like an email address or phone number")).toBeVisible();
  await expect(banner(page)).toHaveCount(0);
});

test("a double click acts once, and the late copy of a form does nothing", async ({ as, api }) => {
  const page = await as("oncall");
  await page.goto("/freeze");
  await page.getByRole("radio", { name: "channel:email" }).check();
  await page.getByLabel("Reason", { exact: true }).fill("INC-3");
  const fields = await page.locator("form.freeze-form").evaluate((form) => Object.fromEntries(new FormData(form)));
  await page.getByRole("button", { name: "Freeze dispatch" }).dblclick();
  await expect(banner(page)).toContainText("channel email");
  await expect(banner(page).getByRole("listitem")).toHaveCount(1);

  await page.goto("/freeze");
  await page.getByLabel("Reason for reopening").fill("INC-3 is over");
  await page.getByRole("button", { name: "Reopen dispatch" }).dblclick();
  await expect(page.getByText("Nothing is frozen")).toBeVisible();

  // The first form once more, as a browser that was asleep would send it.
  const late = await page.request.post("/freeze", { form: fields });
  expect(late.url()).toContain("/freeze?done=repeated");
  await page.goto("/freeze");
  await expect(page.getByText("Nothing is frozen")).toBeVisible();
  expect(await api.freezes()).toEqual([]);
});

test("a form of an older session does nothing, says so, and keeps what was typed", async ({ as }) => {
  const page = await as("oncall");
  await page.goto("/freeze");
  await page.getByRole("radio", { name: "provider:demo" }).check();
  await page.getByLabel("Reason", { exact: true }).fill("INC-6, typed at length");
  const tokens = page.locator('form.freeze-form input[name="csrf"]');
  await tokens.evaluate((input) => (input.value = input.value.replace(/^./, (c) => (c === "0" ? "1" : "0"))));
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(page.getByRole("alert")).toContainText("out of date and nothing was done");
  await expect(page.getByLabel("Reason", { exact: true })).toHaveValue("INC-6, typed at length");
  await expect(page.getByRole("radio", { name: "provider:demo" })).toBeChecked();
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(banner(page)).toContainText("provider demo");
});

test("what is typed survives the page's own refresh", async ({ as, api }) => {
  const page = await as("oncall");
  await page.goto("/freeze");
  await expectLive(page);
  const reason = page.getByLabel("Reason", { exact: true });
  await reason.fill("half a senten");
  await page.getByRole("radio", { name: "channel:email" }).check();
  await reason.focus();
  const before = await page.locator("time[data-asof]").getAttribute("datetime");
  await api.freeze("channel:sms", "INC-4, by a program");
  await expect(banner(page)).toContainText("INC-4, by a program");
  await expect(page.locator("time[data-asof]")).not.toHaveAttribute("datetime", before);
  await expect(reason).toHaveValue("half a senten");
  await expect(reason).toBeFocused();
  await expect(page.getByRole("radio", { name: "channel:email" })).toBeChecked();
});
