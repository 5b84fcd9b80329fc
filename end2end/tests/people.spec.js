// Accounts: an admin's day, a second factor, compliance's day with the operators' log, and the blind look-up.
import { createHmac } from "node:crypto";
import { PASSWORD, expect, expectAccessible, signIn, test } from "../support/test.js";

// 422 is in the console of every browser.
test.use({ world: { name: "people" }, expectedComplaints: /status of 4(03|22)/ });

/** RFC 6238 with SHA-1, six digits, 30 seconds. */
function code(base32, at = Date.now()) {
  const bits = [...base32].map((c) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(c).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const mac = createHmac("sha1", key).update(counter).digest();
  const from = mac[19] & 15;
  return String((mac.readUInt32BE(from) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

async function search(page, text) {
  await page.getByLabel("Search events").fill(text);
  await page.getByLabel("Search events").press("Enter");
}

test("an admin's day: somebody joins, gets another role, and leaves; a program gets a key and loses it", async ({ as, browser, server }) => {
  const admin = await as("admin");
  await admin.goto("/admin/users");
  await admin.getByLabel("Email").fill("new.hand@example.com");
  await admin.getByLabel("Role", { exact: true }).selectOption("support");
  await admin.getByRole("button", { name: "Add user" }).click();
  const password = await admin.locator("#shown-once").innerText();
  expect(password).toMatch(/^[a-z0-9]{5}(-[a-z0-9]{5}){3}$/);
  await expectAccessible(admin, "a password that is shown once");
  await admin.goto("/admin/users");
  await expect(admin.locator("#shown-once")).toHaveCount(0);

  const context = await browser.newContext({ baseURL: server.url });
  const page = await context.newPage();
  await signIn(page, { email: "new.hand@example.com", password });
  await expect(page).toHaveURL("/account");
  await expect(page.getByText("Choose a password of your own first")).toBeVisible();
  await page.getByLabel("Current password").fill(password);
  await page.getByLabel("New password", { exact: true }).fill(PASSWORD);
  await page.getByLabel("The new password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Change password" }).click();
  await expect(page.getByRole("status").filter({ hasText: "Your password is changed" })).toBeVisible();
  await page.goto("/events");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Events");

  const row = admin.getByRole("row", { name: /new\.hand@example\.com/ });
  await row.getByText("Manage").click();
  await row.getByRole("combobox").selectOption("compliance");
  await row.getByRole("button", { name: /Change role/ }).click();
  await expect(admin.getByRole("status").filter({ hasText: "has the role compliance now" })).toBeVisible();
  await page.goto("/log");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Operators’ log");
  await row.getByText("Manage").click();
  await row.getByRole("button", { name: /Disable/ }).click();
  await expect(row).toContainText("disabled");
  await page.goto("/log");
  await expect(page).toHaveURL(/\/login/);
  await context.close();

  await admin.goto("/admin/clients");
  await admin.getByLabel("Name", { exact: true }).fill("night-batch");
  await admin.getByRole("checkbox", { name: /^status/ }).check();
  await admin.getByRole("button", { name: "Add client" }).click();
  const key = await admin.locator("#shown-once").innerText();
  const ask = () => fetch(`${server.url}/v1/events?event_id=nothing`, { headers: { Authorization: `Bearer ${key}` } });
  expect((await ask()).status).toBe(404);
  const client = admin.getByRole("row", { name: /night-batch/ });
  await client.locator("summary").click();
  await client.getByRole("textbox").fill("night-batch");
  await client.getByRole("button", { name: /Revoke key/ }).click();
  await expect(client).toContainText("revoked");
  expect((await ask()).status).toBe(401);

  await admin.goto("/admin/config");
  await expect(admin.getByRole("region", { name: "[dispatch]" })).toContainText("call_timeout");
});

test("a second factor, by keyboard alone", async ({ browser, server, people }) => {
  const context = await browser.newContext({ baseURL: server.url });
  const page = await context.newPage();
  await signIn(page, people.support);
  await page.goto("/account");
  await page.getByRole("textbox", { name: "Password", exact: true }).focus();
  await page.keyboard.type(PASSWORD);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("img", { name: "The key as a picture to scan" })).toBeVisible();
  await expectAccessible(page, "enrolment");
  const secret = await page.locator(".qr + p code").innerText();
  await expect(page.getByLabel("One-time code")).toBeFocused();
  const first = code(secret);
  await page.keyboard.type(first);
  await page.keyboard.press("Enter");
  const items = page.getByRole("list", { name: "Recovery codes" }).getByRole("listitem");
  await expect(items).toHaveCount(10);
  const recovery = await items.allInnerTexts();

  await page.goto("/");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Email").fill(people.support.email);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByLabel("One-time code").fill(first);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert")).toContainText("it was used before");
  await page.getByLabel("One-time code").fill(recovery[0]);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
  await context.close();
});

test("somebody calls and knows only a number: the look-up keeps nothing of it", async ({ as }) => {
  const page = await as("compliance");
  await page.goto("/events");
  await search(page, "+1 202 555 0177");
  await page.getByRole("link", { name: "blind look-up", exact: true }).click();
  await page.getByLabel("Phone number or email address").fill("+12025550177");
  await page.getByRole("button", { name: "Look up" }).click();
  await expect(page.getByText("No call was made to this number")).toBeVisible();
  expect(page.url()).toMatch(/\/lookup$/);
  expect(await page.content()).not.toContain("2025550177");
  await page.getByLabel("Phone number or email address").fill("02025550177");
  await page.getByRole("button", { name: "Look up" }).click();
  await expect(page.getByText("Type a whole number with +")).toBeVisible();
});

test("compliance's day: who looked, and the log to take away", async ({ as, api }) => {
  const event = await api.admit({ seller_id: "seller_77" });
  await (await as("oncall")).goto(`/events/${event.id}`);
  const page = await as("compliance");
  await page.goto("/log");
  await expect(page.getByRole("row").filter({ hasText: "viewed event" }).first()).toContainText("oncall@example.com");
  await page.getByRole("combobox", { name: "What" }).selectOption("view");
  await page.getByRole("button", { name: "Apply filters" }).click();
  await expect(page).toHaveURL(/\/log\?group=view/);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download CSV" }).click(),
  ]);
  expect(download.suggestedFilename()).toMatch(/^sendonce-log-\d{8}T\d{6}Z-\d{8}T\d{6}Z\.csv$/);
  await page.goto("/log?group=export");
  await expect(page.getByRole("row").filter({ hasText: "exported log" })).toHaveCount(1);
});

test("the list of keys, a page by two keys, rows by one, and a view that is kept", async ({ as, api }) => {
  await api.admit({ event_id: "ev-keys-1" });
  await api.admit({ event_id: "ev-keys-2" });
  const page = await as("oncall");
  await page.goto("/");
  await page.keyboard.press("?");
  await expect(page.getByRole("heading", { name: "Keyboard shortcuts" })).toBeVisible();
  await expectAccessible(page, "the list of keys");
  await page.keyboard.press("Escape");
  await expect(page.getByRole("heading", { name: "Keyboard shortcuts" })).toBeHidden();
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await expect(page).toHaveURL("/events");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  const focused = await page.evaluate(() => document.activeElement.textContent);
  expect(focused).toMatch(/^ev-/);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/events\/[0-9a-f-]{36}/);

  await page.goto("/events?q=ev-keys&channel=sms");
  await page.getByRole("button", { name: "Save this view" }).click();
  await page.goto("/events");
  await page.getByRole("link", { name: "ev-keys, sms" }).click();
  await expect(page).toHaveURL("/events?q=ev-keys&channel=sms");
  await page.getByRole("button", { name: "Forget view ev-keys, sms" }).click();
  await expect(page.getByRole("link", { name: "ev-keys, sms" })).toHaveCount(0);
});

test.describe("without script", () => {
  test.use({
    javaScriptEnabled: false,
    expectedComplaints: /status of 422|preloaded using link preload but not used/,
  });

  test("an admin adds and disables somebody, and a look-up is answered", async ({ page, people }) => {
    await signIn(page, people.admin);
    await page.goto("/admin/users");
    await page.getByLabel("Email").fill("plain@example.com");
    await page.getByRole("button", { name: "Add user" }).click();
    await expect(page.locator("#shown-once")).toBeVisible();
    const row = page.getByRole("row", { name: /plain@example\.com/ });
    await row.locator("summary").click();
    await row.getByRole("button", { name: /Disable/ }).click();
    await expect(row).toContainText("disabled");
    await page.goto("/lookup");
    await page.getByLabel("Phone number or email address").fill("a@shop.example");
    await page.getByRole("button", { name: "Look up" }).click();
    await expect(page.getByText("No call was made to this address")).toBeVisible();
  });
});
