// Opens every page at both widths, in both themes: saves pictures, and fails for serious findings of axe and errors of the console.
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { BASE, start } from "./server.mjs";

const OUT = process.env.OUT ?? fileURLToPath(new URL("node_modules/.pictures", import.meta.url));
const AXE = fileURLToPath(new URL("../node_modules/axe-core/axe.min.js", import.meta.url));
const only = process.argv[2];
const dag = (name) => encodeURIComponent(name);
const RUN = dag("scheduled__2026-11-23T17:00:00+00:00");
const row = (page, n = 1) => page.getByRole("slider").nth(n);
async function drag(page) {
  const box = await row(page).boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 8);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 8, { steps: 4 });
}
async function replay(page) {
  const asked = [];
  page.on("request", (request) => { if (request.method() === "POST") asked.push(request.postDataJSON()); });
  await drag(page);
  await page.mouse.up();
  const form = page.getByRole("region", { name: "Replay", exact: true });
  const [from, until] = await Promise.all(["From", "Until (exclusive)"].map(async (name) => Number(await form.getByLabel(name).inputValue())));
  if (!(await form.getByRole("button", { name: "Replay" }).isDisabled())) throw new Error("a replay without a dry run");
  await form.getByRole("button", { name: "Dry run" }).click();
  await form.getByText(/Would/).waitFor();
  await form.getByRole("button", { name: "Replay" }).click();
  await form.getByText(/^Read /).waitFor();
  const offsets = { flights: { 1: [from, until] } };
  const expected = [{ logical_date: null, conf: { offsets, dry_run: true } }, { logical_date: null, conf: { offsets } }];
  if (JSON.stringify(asked) !== JSON.stringify(expected)) throw new Error(`asked for ${JSON.stringify(asked)}`);
}
async function byKeyboard(page) {
  await page.getByRole("button", { name: "Replay a range" }).press("Enter");
  const form = page.getByRole("region", { name: "Replay", exact: true });
  await form.getByLabel("Partition").selectOption("flights-2");
  await form.getByLabel("From").fill("1490000");
  await form.getByLabel("Until (exclusive)").fill("99999999");
}
async function older(page) {
  const asked = page.waitForRequest((request) => request.method() === "POST");
  await page.getByRole("button", { name: "Replay what flights:clean@0c44b1d09a7e has loaded" }).click();
  await page.getByRole("region", { name: "Replay", exact: true }).getByRole("button", { name: "Dry run" }).click();
  const { conf } = (await asked).postDataJSON();
  if (JSON.stringify(conf) !== '{"versions":"=0c44b1d09a7e","dry_run":true}') throw new Error(JSON.stringify(conf));
}
async function closed(page) {
  await row(page, 0).focus();
  await page.keyboard.press("Enter");
  await page.getByText(/Batch 4,9.. is/).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Home");
  const at = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  if (at !== "Offsets of flights-1") throw new Error(`the focus is at ${at}`);
}
async function turned(page) {
  const bar = page.locator(".bar").first();
  await bar.getByRole("button", { name: "Older" }).click();
  await bar.getByText("Batches 4,581 to 4,780").waitFor();
  await bar.getByRole("button", { name: "Older" }).click();
  await bar.getByText("Batches 4,381 to 4,580").waitFor();
  await bar.getByRole("button", { name: "Newer" }).click();
  await bar.getByText("Batches 4,581 to 4,780").waitFor();
}
/** Time as the axis: a click opens a batch, and nothing can be replayed. */
async function timed(page) {
  await row(page, 0).press("Home");
  await row(page, 0).press("Enter");
  await page.getByText(/^Batch 4,78/).first().waitFor();
  if (await page.getByRole("region", { name: "Replay", exact: true }).count()) throw new Error("a replay of times");
  if (!page.url().includes("axis=time&batch=") && !page.url().includes("batch=")) throw new Error(`the address is ${page.url()}`);
}
async function rates(page) {
  await page.getByLabel("Colour").selectOption("rate");
  await page.getByText(/rows\/s$/).first().waitFor();
  if (!page.url().endsWith("?colour=rate")) throw new Error(`the address is ${page.url()}`);
}
/** The server is gone: what was shown stays, with its age. */
async function gone(page) {
  await page.route("**/tidegate/api/**", (route) => route.abort());
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.getByText(/does not answer.* \(shown as of/).first().waitFor();
}
/** The loader's traps: the script is run for each entry, and again. */
async function again(page) {
  const found = await page.evaluate(async () => {
    for (const query of ["nav", "dag", "run", "nav&again"]) await import(new URL(`tidegate/bundle/tidegate.js?app=${query}`, document.baseURI).href);
    return [["Tidegate", "Tidegate ranges", "Tidegate run"].map((name) => typeof globalThis[name]), document.querySelectorAll("#tidegate-style").length];
  });
  if (JSON.stringify(found) !== '[["function","function","function"],1]') throw new Error(JSON.stringify(found));
}
/** The counts filter, and a row tells more on demand. */
async function filtered(page) {
  await page.getByRole("button", { name: "2 stopped" }).click();
  if ((await page.getByRole("rowheader").count()) !== 2) throw new Error("more than what is stopped is shown");
  await page.getByRole("button", { name: "More of clicks" }).click();
  await page.getByText("batch 4,981, 182,113 offsets").waitFor();
}
const SHOTS = [
  ["nav", "plugin/tidegate"],
  ["filtered", "plugin/tidegate", filtered],
  ["map", "dags/flights/plugin/ranges"],
  ["losing", "dags/losing/plugin/ranges"],
  ["many", "dags/many/plugin/ranges"],
  ["away", "dags/away/plugin/ranges"],
  ["empty", "dags/empty/plugin/ranges"],
  ["forbidden", "dags/forbidden/plugin/ranges"],
  ["none", "dags/none/plugin/ranges"],
  ["drag", "dags/flights/plugin/ranges", drag],
  ["batch", "dags/flights/plugin/ranges", async (page) => { await row(page, 0).focus(); await page.keyboard.press("Home"); await page.keyboard.press("ArrowRight"); await page.keyboard.press("Enter"); await page.getByText("Batch 4,796 is").waitFor(); }],
  ["quarantine", "dags/flights/plugin/ranges", async (page) => { await page.getByRole("button", { name: "Quarantine" }).press("Enter"); await page.getByText("1,342").waitFor(); }],
  ["replay", "dags/flights/plugin/ranges", replay],
  ["keys", "dags/flights/plugin/ranges", byKeyboard],
  ["older", "dags/flights/plugin/ranges", older],
  ["closed", "dags/flights/plugin/ranges", closed],
  ["turned", "dags/flights/plugin/ranges", turned],
  ["gone", "dags/flights/plugin/ranges", gone],
  ["lost", "plugin/tidegate", gone],
  ["again", "plugin/tidegate", again],
  ["run", `dags/flights/runs/${RUN}/plugin/range`],
  ["nothing", "dags/flights/runs/nothing/plugin/range"],
  ["failed", "dags/flights/runs/broken/plugin/range"],
  ["dry", "dags/flights__replay/runs/dry/plugin/range"],
  ["chunks", "dags/flights__replay/runs/again/plugin/range"],
  ["linked", "dags/flights/plugin/ranges?batch=4796", async (page) => { await page.getByText("Batch 4,796 is").waitFor(); }],
  ["broken", "dags/flights/plugin/ranges?batch=4796", async (page) => { await page.getByRole("button", { name: "Show broken records" }).press("Enter"); await page.getByText("flights-2 at 1000113").waitFor(); }],
  ["time", "dags/flights/plugin/ranges?axis=time", timed],
  ["rate", "dags/flights/plugin/ranges", rates],
];

const server = await start(0);
const origin = `http://127.0.0.1:${server.address().port}`;
await mkdir(OUT, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
let wrong = 0;
const say = (...words) => { wrong += 1; console.log(...words); };
for (const theme of ["light", "dark"])
  for (const width of [1280, 390])
    for (const [name, path, act] of SHOTS) {
      const shot = `${name}-${width}-${theme}`;
      if (only !== undefined && !shot.includes(only)) continue;
      const context = await browser.newContext({ viewport: { width, height: 900 } });
      await context.addInitScript((value) => { localStorage.theme = value; }, theme);
      const page = await context.newPage();
      page.on("pageerror", (error) => say(shot, "page error", error.message));
      page.on("console", (said) => { if (said.type() === "error" && !said.text().includes("Failed to load resource")) say(shot, said.text()); });
      page.on("request", (request) => { if (!request.url().startsWith(origin + BASE) && !request.url().endsWith("favicon.ico")) say(shot, "asks outside of the base path", request.url()); });
      await page.goto(origin + BASE + path);
      await page.locator(".tidegate").waitFor();
      await page.waitForLoadState("networkidle");
      await act?.(page).catch((error) => say(shot, error.message));
      await page.screenshot({ path: `${OUT}/${shot}.png`, fullPage: true });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) say(shot, "is wider than the screen by", over);
      if (await page.evaluate(() => globalThis.hacked)) say(shot, "ran what a name holds");
      await page.addScriptTag({ path: AXE });
      for (const each of await page.evaluate(async () => (await axe.run(".tidegate")).violations))
        if (["serious", "critical"].includes(each.impact)) say(shot, each.id, each.nodes.map((node) => node.html.slice(0, 200)).slice(0, 3));
        else console.log(shot, "minor:", each.id, each.nodes.length);
      await context.close();
    }
await browser.close();
server.close();
console.log(wrong === 0 ? "nothing wrong" : `${wrong} wrong`);
process.exitCode = wrong === 0 ? 0 : 1;
