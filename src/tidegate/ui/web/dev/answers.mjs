// Answers as the plugin's routes and Airflow give them, made up. A DAG's name says what is special about it.
const NOW = () => Date.now();
const AWAY = { message: "no broker of kafka_default answers", fix: "Start the brokers, or mend the connection's bootstrap.servers" };
const HOSTILE = `a"b'c/<img src=x onerror="globalThis.hacked=1">`;

const last = (n, ended = NOW() - 40_000) => ({
  records: 180_000 + 1000 * (n % 37),
  bound: n % 5 === 0 ? null : 200_000 + 500 * (n % 11),
  run_s: 18 + (n % 13),
  load_s: 11 + (n % 7),
  delay_s: 0.8,
  ended_at_ms: ended,
});
const pipeline = (name, more = {}) => ({
  pipeline: name, table: `lake.web.${name.replace(/\W/g, "_")}`, paused: false, seq: 4980, last: last(3), records_per_s: 9411.2, interval_s: 60,
  pending: null, failure: null, run: null, trouble: null, faults: [], ...more,
});
const PIPELINES = [
  pipeline("corrupt", { trouble: "unreadable", last: null, seq: 0, faults: ["saved range tidegate/corrupt/batch/41 cannot be read: it is no JSON. Restore it from a backup, or delete the key with `tidegate repair`"] }),
  pipeline("clicks", { trouble: "stopped", pending: { seq: 4981, run_id: "scheduled__2026-11-23T17:00:00+00:00", offsets: 182_113 }, failure: { run_id: "scheduled__2026-11-23T17:00:00+00:00", why: "Retention has deleted 1,204 offsets of clicks-3 that were not read. Accept the loss with `tidegate replay --accept-loss`, or restore the topic" } }),
  pipeline("away", { trouble: "late", last: { ...last(9), run_s: 95 } }),
  pipeline(HOSTILE, { run: { run_id: "manual__1", state: "running", since_ms: NOW() - 12_000 } }),
  pipeline("many"),
  pipeline("flights"),
  pipeline("forbidden", { interval_s: null, records_per_s: null }),
  pipeline("empty", { trouble: "paused", paused: true, seq: 0, last: null, records_per_s: null }),
];

function lag(dag) {
  if (dag === "empty") return { at_ms: NOW(), lag: null, error: null };
  const partitions = [0, 1, 2].map((partition) => ({ topic: dag, partition, next_offset: 500_000, latest: 512_345, records_behind: 12_345, seconds_behind: 31.2, retention_left_s: 400_000 }));
  const total = { partitions: 3, records_behind: 37_035, seconds_behind: 31.2, retention_left_s: dag === "clicks" ? 1800 : 400_000 };
  const maintenance = dag === "flights" ? "9,120 files of under 1 MB: run tidegate maintain" : null;
  return { at_ms: NOW() - (dag === "away" ? 185_000 : 1500), lag: { total, partitions, maintenance }, error: dag === "away" ? AWAY : null };
}

const TRANSFORMS = ["flights:clean@0c44b1d09a7e", "flights:clean@3f9a0c12b7de"];
function map(dag, query) {
  const total = { many: 1000, empty: 0 }[dag] ?? 4;
  const [limit, skip] = [Number(query.get("limit") ?? 50), Number(query.get("skip") ?? 0)];
  const last_seq = Math.min(4980, Number(query.get("before") ?? 4981) - 1);
  const first_seq = Math.max(1, last_seq - 199);
  const some = dag === "many" ? 200 : 24;
  const rows = Array.from({ length: Math.max(0, Math.min(limit, total - skip)) }, (_, n) => {
    const partition = skip + n;
    const start = 1_000_000 + partition * 777 + first_seq * 100;
    const blocks = [];
    let at = start;
    for (let k = 0; k < some; k++) {
      const size = 900 + ((k * 37 + partition * 11) % 23) * 40;
      const lost = partition === 1 && k === 6;
      const absent = partition === 1 && k === 9;
      const seq = first_seq + Math.floor((k * 200) / some);
      const kind = lost ? "lost" : absent ? "absent" : k === some - 1 && partition < 2 ? ["loaded", "planned"][partition] : "committed";
      blocks.push({ from: at, until: at + size, kind, seqs: lost || absent ? null : [seq, Math.min(last_seq, seq + (some < 100 ? 7 : 0))], batches: some < 100 ? 8 : 1, transform: kind === "committed" ? (partition === 2 && k === 12 ? null : TRANSFORMS[k < some / 2 ? 0 : 1]) : null });
      at += size;
    }
    const open = blocks.at(-1).kind === "committed" ? at : blocks.at(-1).from;
    if (dag !== "away" && partition !== 3) blocks.push({ from: at, until: at + 2400, kind: "pending", seqs: null, batches: 0, transform: null });
    return { topic: dag, partition, next_offset: open, log_start: dag === "away" ? null : start + 2500, log_end: dag === "away" ? null : partition === 3 ? at : at + 2400, blocks };
  });
  const none = dag === "empty";
  return { at_ms: NOW(), pipeline: dag, partitions: total, first_seq: none ? null : first_seq, last_seq: none ? null : last_seq, transforms: none ? [] : TRANSFORMS, faults: [], error: dag === "away" ? AWAY : null, rows };
}

function batch(dag, seq) {
  const run_id = "scheduled__2026-11-23T17:00:00+00:00";
  return {
    at_ms: NOW(), error: dag === "away" ? { message: "the catalog lake does not answer", fix: "Start it" } : null,
    batch: seq === 0 ? null : {
      seq, state: "committed", run_id, planned_at_ms: NOW() - 70_000, who: "timetable", rows: 181_990, transform: TRANSFORMS[1], adopted_from: seq % 2 ? null : "scheduled__2026-11-23T16:00:00+00:00",
      limits: { max_records: 200_000, max_records_per_partition: null }, rate: { policy: "pid", records: 200_500, terms: { proportional: -120.4, integral: 33.21, derivative: 0 } },
      partitions: [0, 1, 2, 3].map((partition) => ({ topic: dag, partition, from: 1_000_000 + partition, until: 1_045_000 + partition, from_reason: "cursor", until_reason: partition === 1 ? "max_records" : "log end" })),
      loads: [
        { run_id, replay: null, rows: 181_990, kept: 0, snapshot: "8412374918237498123", committed_at_ms: NOW() - 50_000, transform: TRANSFORMS[0] },
        { run_id: "manual__2026-11-23T17:05:00+00:00", replay: null, rows: 181_990, kept: 12, snapshot: "8412374918237498124", committed_at_ms: NOW() - 40_000, transform: TRANSFORMS[1] },
      ],
      timing: { records: 182_113, bound: 200_500, run_ms: 24_310, load_ms: 15_020, scheduling_delay_ms: 812, ended_at_ms: NOW() - 40_000 },
    },
  };
}

function tasks() {
  const at = (s) => new Date(NOW() - 70_000 + s * 1000).toISOString();
  return [["plan", 0, 2.1], ["load", 3.4, 18.4], ["commit", 20, 21.2], ["catch_up", 22, 22.4]].map(([task_id, from, until]) => ({ task_id, start_date: at(from), end_date: at(until) }));
}

const runs = new Map();
const asRun = ({ id, conf, at }) => {
  const age = NOW() - at;
  const state = age < 1500 ? "queued" : age < 4000 ? "running" : "success";
  const note = state === "success" ? `${conf.dry_run ? "Would read" : "Read"} ${JSON.stringify(conf.offsets)}: 4,120 rows in 1 chunk` : null;
  return { dag_run_id: id, state, note };
};
function airflow(method, path, body) {
  const [, , , dag, , run] = path.split("/").map(decodeURIComponent);
  if (dag.startsWith("forbidden")) return [403, { detail: "Forbidden" }];
  if (path.endsWith("/taskInstances")) return [200, { task_instances: tasks() }];
  if (method !== "POST") return runs.has(run) ? [200, asRun(runs.get(run))] : [404, { detail: "no such run" }];
  const made = { id: `manual__${NOW()}`, conf: JSON.parse(body).conf, at: NOW() };
  runs.set(made.id, made);
  return [200, asRun(made)];
}

/** Status and body. */
export function answer(method, path, query, body) {
  if (path.startsWith("api/v2/")) return airflow(method, path, body);
  const [, , what, id, view, ...rest] = path.split("/").map(decodeURIComponent);
  if (what === "pipelines") return [200, { at_ms: NOW(), pipelines: PIPELINES }];
  if (id === "forbidden") return [403, { detail: "Forbidden" }];
  if (id === "none") return [404, { message: "none is no pipeline of Tidegate", fix: "Open the page of a pipeline's own DAG" }];
  if (view === "lag") return [200, lag(id)];
  if (view === "map") return [200, map(id, query)];
  if (view === "batches") return [200, batch(id, Number(rest[0]))];
  if (view === "runs") return [200, batch(id, rest.join("/") === "nothing" ? 0 : 4980)];
  if (view === "trend") return [200, { at_ms: NOW(), batches: id === "empty" ? [] : Array.from({ length: 60 }, (_, n) => last(n, NOW() - (60 - n) * 60_000)) }];
  return [404, { message: "there is no such page", fix: "Follow a link of Airflow's UI" }];
}
