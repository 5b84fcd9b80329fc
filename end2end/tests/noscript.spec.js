// Everything that matters works without script.
import { PASSWORD, banner, expect, test } from "../support/test.js";

test.use({
  world: { name: "noscript" },
  javaScriptEnabled: false,
  // The bundle is announced in the head; that nothing asks for it is what we want here.
  expectedComplaints: /^warning: .* was preloaded using link preload but not used/,
});

test("sign in, search, read an event, freeze, reopen", async ({ page, api, people }) => {
  const event = await api.admit({ seller_id: "seller_5" });
  await api.expectState(event.id, "delivered");

  await page.goto(`/events/${event.id}`);
  await expect(page).toHaveURL(/\/login\?next=/);
  await page.getByLabel("Email").fill(people.oncall.email);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL(`/events/${event.id}`);
  await expect(page.getByRole("region", { name: "State" })).toContainText("delivered");
  await page.locator("#fact-1 summary").click();
  await expect(page.locator("#fact-1")).toContainText("Kind");

  await page.getByLabel("Search events").fill("seller:seller_5");
  await page.getByLabel("Search events").press("Enter");
  await expect(page).toHaveURL("/events?q=seller:seller_5");
  await expect(page.getByRole("link", { name: event.event_id, exact: true })).toBeVisible();
  await page.getByRole("combobox", { name: "State" }).selectOption("sent");
  await page.getByRole("button", { name: "Apply filters" }).click();
  await expect(page).toHaveURL(/q=seller(:|%3A)seller_5&state=sent/);
  await expect(page.getByText("No event matches")).toBeVisible();
  await page.getByRole("link", { name: "Remove filter state" }).click();
  await page.getByRole("link", { name: event.event_id, exact: true }).click();

  // What needs script is not offered.
  await expect(page.getByRole("button", { name: "Copy answer" })).toBeHidden();
  await expect(page.getByLabel("Refresh")).toBeHidden();
  await expect(page.getByRole("radio", { name: "Local" })).toBeHidden();

  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Freeze" }).click();
  await page.getByRole("radio", { name: "channel:sms" }).check();
  await page.getByLabel("Reason", { exact: true }).fill("INC-5");
  await page.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(banner(page)).toContainText("INC-5");
  const waiting = await api.admit({ seller_id: "seller_5" });
  await page.goto(`/events/${waiting.id}`);
  await expect(page.getByRole("region", { name: "State" })).toContainText("held by a freeze");

  await banner(page).getByRole("link", { name: "Open freeze desk" }).click();
  await page.getByLabel("Reason for reopening").fill("INC-5 is over");
  await page.getByRole("button", { name: "Reopen dispatch" }).click();
  await expect(page.getByText("Nothing is frozen")).toBeVisible();
  await expect(banner(page)).toHaveCount(0);
  await api.expectState(waiting.id, "delivered");
  await page.goto(`/events/${waiting.id}`);
  await expect(page.getByRole("region", { name: "State" })).toContainText("delivered");

  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page).toHaveURL(/\/login/);
});

test("the menu of a phone opens without script", async ({ as }) => {
  const page = await as("support", { javaScriptEnabled: false, viewport: { width: 390, height: 844 } });
  await page.goto("/");
  await expect(page.getByRole("navigation", { name: "Main" })).toBeHidden();
  await page.getByRole("button", { name: "Open menu" }).click();
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Events" }).click();
  await expect(page).toHaveURL("/events");
});
