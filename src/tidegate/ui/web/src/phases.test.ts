import { expect, it } from "vitest";

import { WAITING, phasesOf, phasesOfTiming } from "./phases";

const at = (s: number | null) => (s === null ? null : new Date(s * 1000).toISOString());
const task = (task_id: string, from: number | null, until: number | null) => ({ task_id, start_date: at(from), end_date: at(until) });

it("adds up to the time from the first task to the last", () => {
  const phases = phasesOf([task("load", 3, 10), task("plan", 0, 2), task("commit", 10, 11), task("catch_up", null, null)], 0);
  expect(phases).toEqual([
    { name: "plan", ms: 2000 },
    { name: "load", ms: 7000 },
    { name: "commit", ms: 1000 },
    { name: WAITING, ms: 1000 },
  ]);
});

it("counts no second twice, and a task that runs up to now", () => {
  expect(phasesOf([task("load", 0, 5), task("load", 4, 8)], 0)).toEqual([{ name: "load", ms: 8000 }]);
  expect(phasesOf([task("load", 0, null)], 3000)).toEqual([{ name: "load", ms: 3000 }]);
  expect(phasesOf([], 3000)).toEqual([]);
});

it("knows of a timing the load and the rest", () => {
  const timing = { records: 1, bound: null, run_ms: 5000, load_ms: 4000, scheduling_delay_ms: 0, ended_at_ms: 0 };
  expect(phasesOfTiming(timing).map((phase) => phase.ms)).toEqual([4000, 1000]);
});
