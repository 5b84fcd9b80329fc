import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { defineConfig } from "@playwright/test";

// The browser of the machine where there is one; else Playwright's own.
function browser() {
  try {
    const script = fileURLToPath(new URL("../scripts/find-browser.sh", import.meta.url));
    return execFileSync(script, { encoding: "utf8" }).trim();
  } catch {
    return undefined;
  }
}

const isRoot = process.getuid?.() === 0;

export default defineConfig({
  testDir: "tests",
  // Emptied by each run; the screenshots beside it stay.
  outputDir: "results/run",
  // Each worker has a server of its own, so tests never meet; more than the cores only makes them late.
  fullyParallel: false,
  workers: Number(process.env.E2E_WORKERS ?? 2),
  forbidOnly: Boolean(process.env.CI),
  retries: 0,
  timeout: 30_000,
  expect: { timeout: 7_000 },
  reporter: [["list"]],
  use: {
    actionTimeout: 10_000,
    screenshot: "only-on-failure",
    // Recording costs about a third of the run: E2E_TRACE=1 where a failure has to be understood.
    trace: process.env.E2E_TRACE ? "retain-on-failure" : "off",
    timezoneId: "Europe/Berlin",
    launchOptions: {
      executablePath: browser(),
      args: [
        ...(isRoot ? ["--no-sandbox"] : []), // Chromium's sandbox refuses root
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
