// What the browser is allowed to do, and what it has to load.
import { expect, expectLive, test } from "../support/test.js";

test.use({ world: { name: "policy" } });

const BYTES_MAX = 150_000;

test.describe("the policy", () => {
  test.use({ expectedComplaints: /^error: Executing inline script violates/ });

  test("the page lives under its own policy: only its nonce runs", async ({ as }) => {
    const page = await as("support");
    const stream = page.waitForResponse((response) => new URL(response.url()).pathname === "/live");
    const response = await page.goto("/events");
    const policy = response.headers()["content-security-policy"];
    expect(policy).toMatch(/script-src 'self' 'nonce-[0-9a-f]{32}' 'wasm-unsafe-eval'/);
    expect(policy).not.toContain("unsafe-inline");
    const nonces = await page.locator("script[nonce]").evaluateAll((scripts) => scripts.map((script) => script.nonce));
    expect(nonces.length).toBeGreaterThan(0);
    for (const nonce of nonces) expect(policy).toContain(`'nonce-${nonce}'`);

    // The island of this page is awake: its picker is shown and its stream is open.
    await expectLive(page);
    await expect(page.locator("leptos-island")).toHaveCount(1);
    const live = await stream;
    expect(live.status()).toBe(200);
    expect(live.headers()["content-type"]).toContain("text/event-stream");

    // A script that somebody got into the page does not run.
    const violation = page.evaluate(
      () => new Promise((resolve) => addEventListener("securitypolicyviolation", (e) => resolve(e.violatedDirective))),
    );
    await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.planted = true";
      document.body.append(script);
    });
    expect(await violation).toContain("script-src");
    expect(await page.evaluate(() => window.planted)).toBeUndefined();

    const again = await page.request.get("/events");
    expect(again.headers()["content-security-policy"]).not.toBe(policy);
    expect(again.headers()["cache-control"]).toBe("no-store");
  });
});

test("the first view is small, and the second loads no file again", async ({ as }) => {
  // The first one signs in and so fills its cache; the second has only the cookie.
  await as("support");
  const page = await as("support");
  const sizes = new Map();
  const finished = [];
  page.on("requestfinished", (request) => {
    const path = new URL(request.url()).pathname;
    if (path === "/live") return;
    finished.push(request.sizes().then(({ responseBodySize }) => sizes.set(path, responseBodySize)));
  });
  await page.goto("/events");
  await expectLive(page);
  await Promise.all(finished);
  const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  test.info().annotations.push({ type: "bytes", description: JSON.stringify([...sizes, ["total", total]]) });
  for (const path of ["/events", "/ui.js", "/pkg/sendonce.css", "/pkg/sendonce.js", "/pkg/sendonce_bg.wasm"]) {
    expect(sizes.get(path), path).toBeGreaterThan(0);
  }
  expect(total).toBeLessThan(BYTES_MAX);

  // Files are kept or found unchanged: a second view costs the page alone.
  sizes.clear();
  finished.length = 0;
  await page.goto("/unknown");
  await expectLive(page);
  await Promise.all(finished);
  const again = [...sizes].filter(([path]) => path !== "/unknown").reduce((sum, [, size]) => sum + size, 0);
  expect(again, JSON.stringify([...sizes])).toBeLessThan(1_000);
});
