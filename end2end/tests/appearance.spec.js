// Every page in the states worth seeing, in both themes, narrow and wide: nothing that axe can fault, nothing that
// scrolls sideways, and a picture of each in results/screenshots, to be looked at.
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, expectAccessible, expectLive, test } from "../support/test.js";

const PICTURES = fileURLToPath(new URL("../results/screenshots", import.meta.url));
const SIZES = [
  { width: 1280, height: 900 },
  { width: 390, height: 844 },
];

test.use({
  world: { name: "production" },
  contextOptions: { reducedMotion: "reduce", viewport: SIZES[0] },
  expectedComplaints: /status of (403|404|422)/,
});
test.describe.configure({ mode: "serial", timeout: 120_000 });

async function look(page, name) {
  await mkdir(PICTURES, { recursive: true });
  for (const size of SIZES) {
    await page.setViewportSize(size);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const where = `${name}-${colorScheme}-${size.width}`;
      await page.screenshot({ path: `${PICTURES}/${where}.png`, fullPage: true, animations: "disabled" });
      // Between the themes only colours differ, and between the sizes no colour does.
      if (colorScheme === "light") await expectAccessible(page, where);
      else if (size === SIZES[0]) await expectAccessible(page, where, ["color-contrast"]);
    }
    // Nor does a table: what has no room leaves or is cut with its whole text in the title.
    const wide = await page.evaluate(() =>
      [document.documentElement, ...document.querySelectorAll(".scroll")]
        .filter((box) => box.scrollWidth > box.clientWidth)
        .map((box) => `${box.getAttribute("aria-label") ?? "page"}: ${box.scrollWidth} in ${box.clientWidth}`),
    );
    expect.soft(wide, `${name} scrolls sideways at ${size.width}`).toEqual([]);
  }
  await page.setViewportSize(SIZES[0]);
}

test("before anything has happened", async ({ as, page, people }) => {
  await page.goto("/login");
  await look(page, "login");
  await page.getByLabel("Email").fill(people.support.email);
  await page.getByLabel("Password").fill("not the password at all");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toBeVisible();
  await look(page, "login-wrong");

  const oncall = await as("oncall");
  for (const [path, name] of [["/", "overview-empty"], ["/events", "events-empty"], ["/unknown", "unknown-empty"], ["/freeze", "freeze-open"]]) {
    await oncall.goto(path);
    await expectLive(oncall);
    await look(oncall, name);
  }
});

test("while events come and go", async ({ as, api }) => {
  // One in each state that can be had within seconds.
  const delivered = await api.admit({ event_id: "ev-5be1a2f0", seller_id: "seller_1042", request_window: "2026-03-14T01" });
  await api.expectState(delivered.id, "delivered");
  await api.provider({ behaviour: ["hang_before_accept", "accept"] });
  const resent = await api.admit({ event_id: "ev-77c0d1e4", seller_id: "seller_1042", request_window: "2026-03-14T02", channel: "email" });
  await api.expectState(resent.id, "delivered");
  await api.provider({ behaviour: ["refuse_permanently"] });
  const failed = await api.admit({ seller_id: `seller_${"x".repeat(80)}` });
  await api.expectState(failed.id, "failed_final");
  await api.provider({ delivery: "never" });
  const sent = await api.admit({ event_id: `reset:${"2026-03-14.".repeat(10)}`, seller_id: "seller_1042" });
  await api.expectState(sent.id, "sent");
  const unknown = await api.admitUnknown({ event_id: "ev-0c9d7e21", seller_id: "seller_1042", request_window: "2026-03-14T03" });
  await api.admitUnknown();

  const support = await as("support");
  const pages = [
    ["/", "overview"],
    ["/events", "events"],
    ["/events?state=expired&channel=sms&q=ev-ffff", "events-narrow"],
    ["/events?q=stat:sent", "events-problem"],
    [`/events/${delivered.id}`, "event-delivered"],
    [`/events/${resent.id}`, "event-resent"],
    [`/events/${failed.id}`, "event-failed"],
    [`/events/${sent.id}`, "event-sent-long-id"],
    [`/events/${unknown.id}`, "event-unknown"],
    ["/sellers/seller_1042", "seller"],
    ["/sellers/seller_none", "seller-none"],
    ["/unknown", "unknown"],
    ["/providers", "providers"],
    ["/workers", "workers"],
  ];
  for (const [path, name] of pages) {
    await support.goto(path);
    await expectLive(support);
    await look(support, name);
  }
});

test("what is refused, and what an admin sees", async ({ as }) => {
  const support = await as("support");
  for (const [path, name] of [["/admin/users", "refused-403"], ["/nowhere", "refused-404"]]) {
    await support.goto(path);
    await look(support, name);
  }
  await support.goto("/events");
  await support.getByLabel("Search events").fill("user@example.com");
  await support.getByLabel("Search events").press("Enter");
  await expect(support.getByRole("alert")).toBeVisible();
  await look(support, "events-personal");

  const admin = await as("admin");
  const pages = [
    ["/admin/users", "users"],
    ["/admin/clients", "clients"],
    ["/admin/config", "config"],
    ["/account", "account"],
    ["/lookup", "lookup"],
    ["/log", "log"],
  ];
  for (const [path, name] of pages) {
    await admin.goto(path);
    await look(admin, name);
  }
});

test("while dispatch is frozen", async ({ as, api }) => {
  const oncall = await as("oncall");
  await oncall.goto("/freeze");
  await oncall.getByRole("radio", { name: "Every channel and provider" }).check();
  await oncall.getByRole("button", { name: "Freeze dispatch" }).evaluate((button) => (button.form.noValidate = true));
  await oncall.getByRole("button", { name: "Freeze dispatch" }).click();
  await expect(oncall.getByRole("alert")).toBeVisible();
  await look(oncall, "freeze-refused");

  await api.freeze("channel:sms", "Carrier answers 200 but messages do not arrive, INC-2291");
  const waiting = await api.admit({ event_id: "ev-9a41f3b7", seller_id: "seller_1042", request_window: "2026-03-14T04" });
  for (let i = 0; i < 12; i += 1) await api.admit({ lifetime_ms: (4 + i) * 60_000 });
  await oncall.goto("/freeze");
  await look(oncall, "freeze-one");
  await api.freeze("provider:demo", "Maintenance until three");
  await oncall.goto("/freeze");
  await look(oncall, "freeze-two");
  const support = await as("support");
  for (const [path, name] of [["/freeze", "freeze-support"], ["/", "overview-frozen"], [`/events/${waiting.id}`, "event-held"]]) {
    await support.goto(path);
    await look(support, name);
  }
});

test("the menus of a phone", async ({ as }) => {
  const page = await as("oncall", { viewport: SIZES[1] });
  await page.goto("/");
  await page.getByRole("button", { name: "Open menu" }).click();
  await page.screenshot({ path: `${PICTURES}/phone-menu.png` });
  await expectAccessible(page, "phone menu");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Open your menu" }).click();
  await page.screenshot({ path: `${PICTURES}/phone-you.png` });
  await expectAccessible(page, "phone you");
});
