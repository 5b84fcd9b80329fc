// Compliance reads; an admin looks after accounts and keys.
import { expect, test } from "../support/test.js";

test.use({ world: { name: "readers" }, expectedComplaints: /status of 403/ });

test("compliance reads an event's whole story and what proves that it was sent once", async ({ as, api }) => {
  const event = await api.admit({ seller_id: "seller_12" });
  await api.expectState(event.id, "delivered");
  const page = await as("compliance");
  await page.goto(`/events/${event.id}`);

  const timeline = page.getByRole("region", { name: "Timeline" });
  const facts = timeline.locator("[id^=fact-]");
  const titles = await facts.getByRole("heading").allInnerTexts();
  expect(titles.length).toBeGreaterThanOrEqual(4);
  const proof = page.getByRole("region", { name: "Duplicate proof" });
  await expect(proof).toContainText("holds");
  await expect(proof.getByText("call", { exact: true })).toBeVisible();

  // Each claim leads to its fact.
  await proof.getByRole("link", { name: "fact #1" }).first().click();
  await expect(page).toHaveURL(/#fact-1$/);
  await expect(page.locator("#fact-1")).toBeInViewport();
  await page.locator("#fact-1 summary").click();
  await expect(page.locator("#fact-1")).toContainText("admitted");
  await expect(page.locator("#fact-1")).toContainText("UTC");

  // And cannot act.
  await page.goto("/freeze");
  await expect(page.getByRole("button", { name: /dispatch/ })).toHaveCount(0);
  expect((await page.goto("/admin/clients")).status()).toBe(403);
});

test("no page of an event holds an address, a number or a link to reset by", async ({ as, api }) => {
  const event = await api.admit({ seller_id: "seller_13", channel: "email" });
  await api.expectState(event.id, "delivered");
  const page = await as("compliance");
  for (const path of [`/events/${event.id}`, "/events", "/sellers/seller_13"]) {
    await page.goto(path);
    const text = await page.getByRole("main").innerText();
    expect(text, path).not.toMatch(/[\w.]+@[\w.]+|\+\d{8,15}|https?:\/\//);
  }
});

test("an admin sees users and clients, and no key or hash of one", async ({ as, api, people, server }) => {
  const page = await as("admin");
  await page.goto("/");
  const menu = page.getByRole("navigation", { name: "Main" });
  await menu.getByRole("link", { name: "Users" }).click();
  await expect(page).toHaveURL("/admin/users");
  for (const { email } of Object.values(people)) await expect(page.getByRole("main")).toContainText(email);
  await expect(page.getByRole("row", { name: /admin@example.com/ })).toContainText("(you)");
  await expect(page.getByRole("main")).not.toContainText("$argon2");

  const key = await server.addClient("second-client", "status");
  await menu.getByRole("link", { name: "API clients" }).click();
  await expect(page).toHaveURL("/admin/clients");
  await expect(page.getByRole("row", { name: /browser-tests/ })).toContainText("admit");
  await expect(page.getByRole("row", { name: /second-client/ })).toContainText("status");
  expect(await page.content()).not.toContain(key);

  await server.cli(["user", "disable", "--email", people.compliance.email]);
  await menu.getByRole("link", { name: "Users" }).click();
  await expect(page.getByRole("row", { name: /compliance@example.com/ })).toContainText("disabled");
});

test("everybody reads providers and workers", async ({ as }) => {
  const page = await as("oncall");
  await page.goto("/providers");
  await expect(page.getByRole("row", { name: /demo/ })).toContainText("takes calls");
  await page.goto("/workers");
  await expect(page.getByRole("row", { name: /alive/ })).toHaveCount(1);
});
