// What every test uses in place of Playwright's own `test`: a running server with people and a client, and pages that
// may not complain.
import { AxeBuilder } from "@axe-core/playwright";
import { test as base, expect } from "@playwright/test";
import { Api } from "./api.js";
import { Server, freePort } from "./server.js";

export { expect };

export const PASSWORD = "correct horse battery staple";
export const ROLES = ["support", "compliance", "oncall", "admin"];

export const test = base.extend({
  // A file that names its world gets a server of its own, and may change configuration by its environment names:
  // `test.use({ world: { name: "freeze", SENDONCE_DISPATCH__WORKERS: "2" } })`.
  world: [{}, { option: true, scope: "worker" }],

  server: [
    async ({ world }, use) => {
      const { name, ...settings } = world;
      const control = `127.0.0.1:${await freePort()}`;
      const server = await Server.start({
        SENDONCE_SERVER__ENVIRONMENT: name ?? "test",
        SENDONCE_PROVIDERS__DEMO__LISTEN: control,
        SENDONCE_DISPATCH__CALL_TIMEOUT: "1s",
        ...settings,
      });
      server.control = `http://${control}`;
      await use(server);
      await server.stop();
    },
    { scope: "worker", timeout: 60_000 },
  ],

  // One operator of each role: `people.oncall.email`.
  people: [
    async ({ server }, use) => {
      const people = {};
      for (const role of ROLES) people[role] = await server.addUser(`${role}@example.com`, role, PASSWORD);
      await use(people);
    },
    { scope: "worker", timeout: 60_000 },
  ],

  // The API as a client of it, and the control API of the built-in provider.
  api: [
    async ({ server }, use) => {
      await use(new Api(server, await server.addClient("browser-tests", "admit", "status", "cancel", "freeze")));
    },
    { scope: "worker", timeout: 60_000 },
  ],

  baseURL: async ({ server }, use) => use(server.url),

  // Complaints that a test provokes on purpose: `test.use({ expectedComplaints: /status of 503/ })`.
  expectedComplaints: [null, { option: true }],

  // Covers every page of the contexts that it is told of, also those that a click opens.
  complaints: [
    async ({ context, expectedComplaints }, use) => {
      const heard = [];
      const isExpected = (text) => expectedComplaints?.test(text) ?? false;
      const listen = (context) => {
        context.on("console", (message) => {
          if (message.type() === "error" || message.type() === "warning") {
            heard.push(`${message.type()}: ${message.text()} (${message.location().url})`);
          }
        });
        context.on("weberror", (error) => heard.push(`uncaught: ${error.error()}`));
      };
      listen(context);
      await use({ listen });
      expect(heard.filter((text) => !isExpected(text)), "the pages complained").toEqual([]);
    },
    { auto: true },
  ],

  // Session cookies by role. Signing in by hand is tested once; everybody else comes in this way.
  sessions: [async ({}, use) => use(new Map()), { scope: "worker" }],

  // `await as("oncall")` is a page of a browser of its own in which that role is signed in.
  as: async ({ browser, contextOptions, complaints, people, sessions }, use) => {
    const contexts = [];
    await use(async (role, options = {}) => {
      const context = await browser.newContext({ ...contextOptions, ...options });
      contexts.push(context);
      complaints.listen(context);
      const page = await context.newPage();
      if (sessions.has(role)) {
        await context.addCookies(sessions.get(role));
      } else {
        await signIn(page, people[role]);
        sessions.set(role, await context.cookies());
      }
      return page;
    });
    for (const context of contexts) await context.close();
  },
});

/** Fails on any accessibility fault that axe can see; with `rules`, on a fault against these. */
export async function expectAccessible(page, where = page.url(), rules = []) {
  // Legacy: without frames there is nothing to put together, and the other way opens a page for it each time.
  const axe = new AxeBuilder({ page }).setLegacyMode(true);
  axe.options({ resultTypes: ["violations"], ...(rules.length > 0 && { runOnly: { type: "rule", values: rules } }) });
  const { violations } = await axe.analyze();
  const faults = violations.map((v) => {
    const nodes = v.nodes.map((n) => `${n.target.join(" ")}: ${n.failureSummary}`);
    return `${v.id}: ${v.help} (${nodes.join("; ")})`;
  });
  expect(faults, where).toEqual([]);
}

export async function signIn(page, { email, password }) {
  await page.goto("/login");
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).not.toHaveURL(/\/login/);
}

/** The page is followed live: the island runs and its stream is open. */
export async function expectLive(page) {
  await expect(page.getByLabel("Refresh")).toBeVisible();
}

/** The region that says what is frozen. */
export const banner = (page) => page.getByRole("region", { name: "Dispatch frozen" });
