import { describe, expect, it, vi } from "vitest";

import { address, nowMs, part, refused, runPage, view } from "./api";

describe("an address", () => {
  it("is below the one that Airflow is served at, whatever an id holds", () => {
    vi.stubGlobal("document", { baseURI: "https://host/some/path/" });
    expect(address("tidegate/api/pipelines")).toBe("https://host/some/path/tidegate/api/pipelines");
    expect(runPage("../a b", "manual__2026-01-01T00:00:00+00:00")).toBe(
      "https://host/some/path/dags/..%2Fa%20b/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00",
    );
    expect(part(`<"'/>`)).toBe("%3C%22'%2F%3E");
    vi.unstubAllGlobals();
  });
});

describe("a refusal", () => {
  it("says what the server says, and how to go on", () => {
    expect(refused(503, { message: "no broker answers", fix: "Start it" }, false)).toMatchObject({ message: "no broker answers", fix: "Start it" });
    expect(refused(404, { message: "no such batch" }, false)).toMatchObject({ message: "no such batch", fix: "" });
    expect(refused(422, { detail: [{ msg: "bad" }] }, true).fix).toBe('[{"msg":"bad"}]');
    expect(refused(500, null, false)).toMatchObject({ message: "Airflow's API server answers 500", fix: "" });
  });

  it("tells rights to read from rights to trigger", () => {
    expect(refused(401, { detail: "Not authenticated" }, false).fix).toContain("log in");
    expect(refused(403, { detail: "Forbidden" }, false).fix).toContain("role Viewer");
    expect(refused(403, { detail: "Forbidden" }, true).fix).toContain("role User");
  });
});

describe("the time", () => {
  it("is the server's, where the browser's clock is wrong", async () => {
    vi.stubGlobal("document", { baseURI: "https://host/" });
    for (const wrongMs of [600_000, -600_000, 1000]) {
      const date = new Date(Date.now() + wrongMs).toUTCString();
      vi.stubGlobal("fetch", () => Promise.resolve(Response.json({}, { headers: { Date: date } })));
      await view("pipelines");
      const differs = nowMs() - Date.now();
      if (wrongMs === 1000) expect(differs).toBe(0);
      else expect(Math.abs(differs - wrongMs)).toBeLessThan(2000);
    }
    vi.stubGlobal("fetch", () => Promise.resolve(Response.json({})));
    await view("pipelines");
    expect(nowMs() - Date.now()).toBe(0);
    vi.unstubAllGlobals();
  });
});
