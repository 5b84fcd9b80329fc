// What every test uses in place of Playwright's own `test`: a server for the worker, and pages that may not complain.
import { AxeBuilder } from "@axe-core/playwright";
import { test as base, expect } from "@playwright/test";
import { Server } from "./server.js";

export { expect };

export const test = base.extend({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.stop();
    },
    { scope: "worker", timeout: 60_000 },
  ],

  baseURL: async ({ server }, use) => use(server.url),

  // Texts or patterns of complaints that a test provokes on purpose: `test.use({ expectedComplaints: [/ 503 /] })`.
  expectedComplaints: [[], { option: true }],

  // Covers every page of the context, also those that a click opens.
  complaints: [
    async ({ context, expectedComplaints }, use) => {
      const heard = [];
      const isExpected = (text) =>
        expectedComplaints.some((e) => (e instanceof RegExp ? e.test(text) : text.includes(e)));
      context.on("console", (message) => {
        if (message.type() === "error" || message.type() === "warning") {
          heard.push(`${message.type()}: ${message.text()} (${message.location().url})`);
        }
      });
      context.on("weberror", (error) => heard.push(`uncaught: ${error.error()}`));
      await use(heard);
      expect(heard.filter((text) => !isExpected(text)), "the pages complained").toEqual([]);
    },
    { auto: true },
  ],
});

/** Fails on any accessibility fault that axe can see. */
export async function expectAccessible(page) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  expect(violations.map((v) => `${v.id}: ${v.help} (${v.nodes.map((n) => n.target.join(" ")).join(", ")})`)).toEqual([]);
}

export async function signIn(page, { email, password }) {
  await page.goto("/login");
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).not.toHaveURL(/\/login/);
}
