// What the plugin's routes answer (tidegate.ui.routes), and the two requests of Airflow's own API that a replay needs.

export type Kind = "planned" | "loaded" | "lost" | "pending" | "committed";

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
  table: string;
  paused: boolean;
  seq: number;
  last: Timing | null;
  records_per_s: number | null;
  interval_s: number | null;
  pending: { seq: number; run_id: string; offsets: number } | null;
  failure: { run_id: string; why: string; command: string | null } | null;
  run: { run_id: string; state: string; since_ms: number } | null;
  trouble: "unreadable" | "file" | "stopped" | "losing" | "late" | "paused" | null;
  faults: string[];
  lag: {
    at_ms: number;
    records_behind: number;
    seconds_behind: number | null;
    retention_left_s: number | null;
    open_transaction: string | null;
  } | null;
  /** Why there is no newer lag. */
  lag_error: Refusal | null;
  /** A newer one is on its way. */
  lag_soon: boolean;
  /** Records behind when each of the last batches was planned, the oldest first. */
  lag_points: number[];
  waiting: string | null;
  file_error: string | null;
}

/** What is worth seeing of a batch beside its state. */
export type Mark = "errors" | "cold" | "recreated" | "replayed";

/** Offsets, or times (epoch ms) where time is the axis of the map. */
export interface Block {
  from: number;
  until: number;
  kind: Kind;
  seqs: [number, number] | null;
  batches: number;
  transform: string | null;
  marks: Mark[];
  records: number;
  rows_per_s: number | null;
}

export interface Row {
  topic: string;
  partition: number;
  next_offset: number | null;
  log_start: number | null;
  log_end: number | null;
  /** Offsets that are not committed yet; null where the log's end is not known. */
  behind: number | null;
  blocks: Block[];
}

export type RunKind = "loaded" | "nothing" | "failed" | "running" | "queued" | "replay";

/** One of the last runs of a pipeline or of its replays. */
export interface RunMark {
  run_id: string;
  dag_id: string;
  kind: RunKind;
  at_ms: number;
  seq: number | null;
  records: number | null;
}

export interface RangeMap {
  axis: "offset" | "time";
  /** From when until when all rows are (epoch ms); null where time is not the axis. */
  span_ms: [number, number] | null;
  runs: RunMark[];
  /** What has not answered yet, of which nothing is known. */
  waiting_for: string[];
  /** A newer answer is on its way. */
  soon: boolean;
  partitions: number;
  rows: Row[];
  first_seq: number | null;
  last_seq: number | null;
  transforms: string[];
  faults: string[];
  error: Refusal | null;
  /** When what is shown of the log, or of the table, was answered that `error` is about; null where nothing is shown of it. */
  error_at_ms: number | null;
}

/** Offsets `[from, until)`. */
export interface Range {
  topic: string;
  partition: number;
  from: number;
  until: number;
}

/** A commit of the table, of a batch or of a chunk of a replay. */
export interface Load {
  run_id: string;
  replay: string | null;
  seq: number;
  rows: number;
  kept: number;
  snapshot: string;
  committed_at_ms: number;
  transform: string;
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
  partitions: (Range & { from_reason: string | null; until_reason: string | null })[];
  loads: Load[];
  timing: { records: number; bound: number | null; run_ms: number; load_ms: number; scheduling_delay_ms: number } | null;
  load: {
    seconds: Record<string, number>;
    records: number | null;
    repeats: number | null;
    errors: number | null;
    spark_age_s: number | null;
  } | null;
  /** Later loads of its offsets that no schedule made. */
  replays: (Load & { dag_id: string; partitions: Range[] })[];
  explained: string[];
}

export interface BatchAnswer {
  batch: Batch | null;
  error: Refusal | null;
  soon: boolean;
}

export interface ReplayRun {
  run_id: string;
  pipeline: string;
  state: string;
  note: string | null;
  dry_run: boolean;
  table: string | null;
  transform: string | null;
  offsets: number | null;
  request: Record<string, unknown>;
  chunks: { chunk: number; offsets: number; landed: boolean; rows: number | null; committed_at_ms: number | null }[];
  replaces: { load: string; offsets: number; rows: number; transform: string }[];
  lost: string[];
  verdict: Record<string, unknown> | null;
}

export interface RunAnswer extends BatchAnswer {
  kind: "batch" | "nothing" | "failed" | "planning" | "replay" | "other";
  reason: string | null;
  replay: ReplayRun | null;
}

/** One batch, or several that were planned one after the other. */
export interface Point {
  at_ms: number;
  seq: number;
  batches: number;
  lag: number | null;
  records: number;
  bound: number | null;
  run_s: number | null;
  load_s: number | null;
  rows: number | null;
}

export interface History {
  from_ms: number;
  until_ms: number;
  points: Point[];
  forecast: {
    next_bound: number | null;
    arrival_per_s: number | null;
    drain_s: number | null;
    verdict: string | null;
  };
  lag: number | null;
  /** Whether all batches of that time are in it; the rest is being read. */
  complete: boolean;
  faults: string[];
  error: Refusal | null;
  soon: boolean;
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
  if (status === 403 && changes) return new RequestFailed("You may not do this", "It needs the role User, or one that may trigger this DAG");
  if (status === 403) return new RequestFailed("You may not see this", "It needs the role Viewer, or one that may read this DAG's runs");
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

/** What a run read, or replayed. */
export const rangePage = (dagId: string, runId: string): string => `${runPage(dagId, runId)}/plugin/range`;

/** A task of a run, with its log. */
export const taskPage = (dagId: string, runId: string, taskId: string): string => `${runPage(dagId, runId)}/tasks/${part(taskId)}`;
