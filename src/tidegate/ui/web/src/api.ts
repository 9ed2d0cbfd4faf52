// Requests: of what the plugin's routes answer (answers.ts), and of Airflow's own API, as far as a replay needs it.

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

  /** Both as one text. */
  get said(): string {
    return this.fix === "" ? this.message : `${this.message}. ${this.fix}`;
  }
}

/** An address below the one that Airflow is served at, which may be a path. */
export const address = (path: string): string => new URL(path, document.baseURI).href;

/** An id as a part of a path. */
export const part = (id: string | number): string => encodeURIComponent(id);

const PATIENCE_MS = 30_000;
/** Differences of two clocks that an answer may take, ms. */
const SAME_MS = 2000;
let ahead = 0;

/** The time by the server's clock, epoch ms, which all times of answers are of; the browser's may be wrong. */
export const nowMs = (): number => Date.now() + ahead;

async function send<T>(path: string, init: RequestInit = {}, signal?: AbortSignal): Promise<T> {
  const limit = AbortSignal.timeout(PATIENCE_MS);
  let response: Response;
  let body: unknown;
  try {
    response = await fetch(address(path), { credentials: "same-origin", ...init, signal: signal ? AbortSignal.any([signal, limit]) : limit });
    const differs = Date.parse(response.headers.get("Date") ?? "") - Date.now();
    ahead = Math.abs(differs) > SAME_MS ? differs : 0;
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
