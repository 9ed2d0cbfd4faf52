// What a run spent its time on. Pure.

import type { BatchTiming } from "./answers";
import type { Task } from "./api";

export interface Phase {
  name: string;
  ms: number;
}

/** Time between tasks: the scheduler's, or that of a pool without a free slot. */
export const WAITING = "between tasks";

/** The tasks of a run one after the other, and the time in which none of them ran; up to now of those that run still. */
export function phasesOf(tasks: Task[], nowMs: number): Phase[] {
  const timed = tasks
    .flatMap(({ task_id, start_date, end_date }) =>
      start_date === null ? [] : [{ name: task_id, from: Date.parse(start_date), until: end_date === null ? nowMs : Date.parse(end_date) }],
    )
    .sort((one, other) => one.from - other.from);
  const phases: Phase[] = [];
  let waited = 0;
  let at = timed[0]?.from ?? 0;
  for (const { name, from, until } of timed) {
    waited += Math.max(0, from - at);
    // tasks of one name, and those that overlap, take their time once
    const ms = Math.max(0, until - Math.max(from, at));
    const same = phases.find((phase) => phase.name === name);
    if (same === undefined) phases.push({ name, ms });
    else same.ms += ms;
    at = Math.max(at, until);
  }
  return waited > 0 ? [...phases, { name: WAITING, ms: waited }] : phases;
}

/** The same of a run whose tasks are not known, as far as the cursor tells. */
export const phasesOfTiming = ({ load_ms, run_ms }: BatchTiming): Phase[] => [
  { name: "load", ms: load_ms },
  { name: "plan, commit and Airflow", ms: Math.max(0, run_ms - load_ms) },
];
