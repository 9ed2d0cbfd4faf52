// What the plugin's routes answer (tidegate.ui.routes), and the two requests of Airflow's own API that a replay needs.

export type Kind = "planned" | "loaded" | "lost" | "absent" | "pending" | "committed";

export interface Refusal {
  message: string;
  fix: string;
}

export interface Timing {
  records: number;
  bound: number | null;
  run_s: number;
  load_s: number;
  delay_s: number;
  ended_at_ms: number;
}

export interface Pipeline {
  pipeline: string;
  /** Where it is not told, the DAG has the pipeline's name. */
  dag_id?: string;
  table: string;
  paused: boolean;
  seq: number;
  last: Timing | null;
  records_per_s: number | null;
  interval_s: number | null;
  pending: { seq: number; run_id: string; offsets: number } | null;
  failure: { run_id: string; why: string } | null;
  run: { run_id: string; state: string; since_ms: number } | null;
  trouble: "unreadable" | "stopped" | "late" | "paused" | null;
  faults: string[];
}

export interface Lag {
  lag: {
    total: { partitions: number; records_behind: number; seconds_behind: number | null; retention_left_s: number | null };
    maintenance: string | null;
  } | null;
  error: Refusal | null;
  at_ms: number;
}

export interface Block {
  from: number;
  until: number;
  kind: Kind;
  seqs: [number, number] | null;
  batches: number;
  transform: string | null;
}

export interface Row {
  topic: string;
  partition: number;
  next_offset: number | null;
  log_start: number | null;
  log_end: number | null;
  blocks: Block[];
}

export interface RangeMap {
  partitions: number;
  rows: Row[];
  first_seq: number | null;
  last_seq: number | null;
  transforms: string[];
  faults: string[];
  error: Refusal | null;
}

export interface Batch {
  seq: number;
  state: string;
  run_id: string;
  planned_at_ms: number;
  who: string | null;
  rows: number | null;
  transform: string | null;
  adopted_from: string | null;
  limits: Record<string, unknown>;
  rate: { policy: string; records: number; terms: Record<string, number> } | null;
  partitions: {
    topic: string;
    partition: number;
    from: number;
    until: number;
    from_reason: string | null;
    until_reason: string | null;
  }[];
  loads: { run_id: string; replay: string | null; rows: number; kept: number; snapshot: string; committed_at_ms: number; transform: string }[];
  timing: { records: number; bound: number | null; run_ms: number; load_ms: number; scheduling_delay_ms: number } | null;
}

export interface BatchAnswer {
  batch: Batch | null;
  error: Refusal | null;
}

export interface Run {
  dag_run_id: string;
  state: string;
  note: string | null;
}

export interface Task {
  task_id: string;
  start_date: string | null;
  end_date: string | null;
}

/** A request that was refused, with what to do about it as far as the server says. */
export class RequestFailed extends Error {
  constructor(
    message: string,
    readonly fix = "",
  ) {
    super(message);
  }
}

/** An address below the one that Airflow is served at, which may be a path. */
export const address = (path: string): string => new URL(path, document.baseURI).href;

/** An id as a part of a path. */
export const part = (id: string | number): string => encodeURIComponent(id);

const PATIENCE_MS = 30_000;

async function send<T>(path: string, init: RequestInit = {}, signal?: AbortSignal): Promise<T> {
  const limit = AbortSignal.timeout(PATIENCE_MS);
  let response: Response;
  let body: unknown;
  try {
    response = await fetch(address(path), { credentials: "same-origin", ...init, signal: signal ? AbortSignal.any([signal, limit]) : limit });
    body = await response.json().catch(() => null);
  } catch {
    throw new RequestFailed("Airflow's API server does not answer");
  }
  if (!response.ok) throw refused(response.status, body, init.method === "POST");
  return body as T;
}

/** What a refusal says, by the plugin's routes (message and fix) or by Airflow (detail). */
export function refused(status: number, body: unknown, changes: boolean): RequestFailed {
  const said = (body ?? {}) as { message?: unknown; fix?: unknown; detail?: unknown };
  if (typeof said.message === "string") return new RequestFailed(said.message, typeof said.fix === "string" ? said.fix : "");
  if (status === 401) return new RequestFailed("Your session has ended", "Reload the page to log in");
  if (status === 403 && changes) return new RequestFailed("You may not do this", "Ask for the right to trigger this DAG");
  if (status === 403) return new RequestFailed("You may not see this", "Ask for the right to read this DAG's runs");
  const detail = typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail ?? "");
  return new RequestFailed(`Airflow's API server answers ${status}`, detail === '""' ? "" : detail);
}

/** One of the plugin's views. */
export const view = <T>(path: string, signal?: AbortSignal): Promise<T> => send<T>(`tidegate/api/${path}`, {}, signal);

/** Trigger a run by Airflow's own API, which authorizes and audits it. */
export const trigger = (dagId: string, conf: object): Promise<Run> =>
  send<Run>(`api/v2/dags/${part(dagId)}/dagRuns`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ logical_date: null, conf }),
  });

const runPath = (dagId: string, runId: string): string => `api/v2/dags/${part(dagId)}/dagRuns/${part(runId)}`;

/** A run as Airflow has it now. */
export const runOf = (dagId: string, runId: string, signal?: AbortSignal): Promise<Run> => send<Run>(runPath(dagId, runId), {}, signal);

/** The tasks of a run, with their times. */
export const tasksOf = async (dagId: string, runId: string, signal?: AbortSignal): Promise<Task[]> =>
  (await send<{ task_instances: Task[] }>(`${runPath(dagId, runId)}/taskInstances`, {}, signal)).task_instances;

/** The page of a run in Airflow's UI. A plain link: the UI's router shows nothing after a plugin's own. */
export const runPage = (dagId: string, runId: string): string => address(`dags/${part(dagId)}/runs/${part(runId)}`);
