import { PASSWORD, expect, expectAccessible, signIn, test } from "../support/test.js";

// The status of a refused form is in the console of every browser.
test.use({ world: { name: "login" }, expectedComplaints: /status of 422/ });

test("the sign-in page has its fields, and nothing to complain about", async ({ page }) => {
  await page.goto("/login");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Sign in");
  await expect(page.getByLabel("Email")).toBeFocused();
  await expect(page.getByLabel("Password")).toBeVisible();
  await expect(page.getByRole("button", { name: "Sign in" })).toBeVisible();
  await expectAccessible(page);
});

test("a wrong password says so, tells nothing, and keeps the address", async ({ page, people }) => {
  await page.goto("/login");
  await page.getByLabel("Email").fill(people.support.email);
  await page.getByLabel("Password").fill("not the password at all");
  await page.getByRole("button", { name: "Sign in" }).click();
  const alert = page.getByRole("alert");
  await expect(alert).toHaveText("That did not work. Check the email and the password.");
  await expect(page.getByLabel("Email")).toHaveValue(people.support.email);
  await expect(page.getByLabel("Password")).toHaveValue("");
  await expect(page.getByLabel("Password")).toBeFocused();

  // Somebody who is not there gets the same words.
  await page.getByLabel("Email").fill("nobody@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(alert).toHaveText("That did not work. Check the email and the password.");
  expect(new URL(page.url()).search).toBe("");
});

test("a signed-out visitor is sent to sign in, and back to where they wanted to go", async ({ page, people }) => {
  await page.goto("/events?state=sent&q=ev-1");
  await expect(page).toHaveURL(/\/login\?next=/);
  await page.getByLabel("Email").fill(people.support.email);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL("/events?state=sent&q=ev-1");
  await expect(page.getByLabel("Search events")).toHaveValue("ev-1");
});

test("a visitor who asked for somebody's address is not sent on with it", async ({ page }) => {
  await page.goto("/events?q=user%40example.com");
  await expect(page).toHaveURL(/\/login/);
  expect(decodeURIComponent(page.url())).not.toContain("example.com");
});

test("nobody is led to another host after signing in", async ({ page, people }) => {
  await page.goto("/login?next=https://evil.example/");
  await page.getByLabel("Email").fill(people.support.email);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL("/");
});

test("signing out ends it, also for the page that Back shows", async ({ page, people }) => {
  await signIn(page, people.compliance);
  await page.goto("/events");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByRole("status").first()).toHaveText("You are signed out.");
  await page.goBack();
  await expect(page).toHaveURL(/\/login/);
});
