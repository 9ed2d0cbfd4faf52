// The pictures of docs/pages.md, of made-up pipelines. Time, zone and language are given: a page that has not changed makes the same picture.
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

process.env.NOW = String(Date.UTC(2026, 10, 23, 17, 1, 10));
const { BASE, start } = await import("./server.mjs");

const OUT = process.env.OUT ?? fileURLToPath(new URL("../../../../../docs/pages", import.meta.url));
const SHOWN = ["clicks", "losing", "away", "flights", "empty"];
const row = (page, n) => page.getByRole("slider").nth(n);

/** The list without the entries that only try the page. */
async function few(page) {
  await page.route("**/api/pipelines", async (route) => {
    const response = await route.fetch();
    const { pipelines, ...rest } = await response.json();
    await route.fulfill({ response, json: { ...rest, pipelines: pipelines.filter((each) => SHOWN.includes(each.pipeline)) } });
  });
}
async function replay(page) {
  const box = await row(page, 1).boundingBox();
  await page.mouse.move(box.x + box.width * 0.55, box.y + 8);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.8, box.y + 8, { steps: 4 });
  await page.mouse.up();
  await page.getByRole("button", { name: "Dry run" }).waitFor();
}
const opened = (page) => page.getByText("Batch 4,796 is").waitFor();

/** Name, address, theme, width and height of the window in pixels, what comes before the page is opened, and after. */
const PICTURES = [
  ["pipelines", "plugin/tidegate", "light", 1200, 500, few],
  ["ranges", "dags/flights/plugin/ranges", "light", 1200, 970],
  ["replay", "dags/flights/plugin/ranges?colour=rate", "light", 1200, 520, undefined, replay],
  ["batch", "dags/flights/plugin/ranges?batch=4796", "dark", 1200, 820, undefined, opened],
  ["replayed", "dags/flights__replay/runs/again/plugin/range", "light", 1200, 650],
];

const server = await start(0);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
await mkdir(OUT, { recursive: true });
for (const [name, path, theme, width, height, before, after] of PICTURES) {
  const page = await browser.newPage({ viewport: { width, height }, locale: "en-GB", timezoneId: "UTC" });
  await page.clock.setFixedTime(Number(process.env.NOW));
  await page.addInitScript((value) => { localStorage.theme = value; }, theme);
  await before?.(page);
  await page.goto(`http://127.0.0.1:${server.address().port}${BASE}${path}`);
  await page.locator(".tidegate").waitFor();
  await page.waitForLoadState("networkidle");
  await after?.(page);
  await page.mouse.move(0, 0);
  const { x } = await page.locator(".tidegate").boundingBox();
  await page.screenshot({ path: `${OUT}/${name}.png`, clip: { x, y: 0, width: width - x, height } });
  await page.close();
}
await browser.close();
server.close();
