// Answers as the plugin's routes and Airflow give them, made up. A DAG's name says what is special about it.
import type { BatchAnswer, BrokenAnswer, HistoryAnswer, MapAnswer, MapBlock, PipelineRow, PipelinesAnswer, QuarantineAnswer, ReplayRun, RunAnswer, RunMark, BatchTiming } from "../src/answers.ts";
import type { Run, Task } from "../src/api.ts";

declare const process: { env: Record<string, string | undefined> };
interface Made { id: string; conf: { dry_run?: boolean; offsets?: unknown }; at: number }

/** Epoch ms; a picture that is made again is the same where the time is given. */
const NOW = () => Number(process.env.NOW ?? Date.now());
const AWAY = "no broker of kafka_default answers. Start the brokers, or mend the connection's bootstrap.servers";
const HOSTILE = `a"b'c/<img src=x onerror="globalThis.hacked=1">`;

const LAG = { partitions: 3, records_behind: 37_035, seconds_behind: 31.2, retention_left_s: 400_000, held_back: 0, open_s: null, open_transaction: null };
const last = (n: number): BatchTiming => ({
  records: 180_000 + 1000 * (n % 37),
  bound: n % 5 === 0 ? null : 200_000 + 500 * (n % 11),
  run_ms: 1000 * (18 + (n % 13)),
  load_ms: 1000 * (11 + (n % 7)),
  scheduling_delay_ms: 800,
  ended_at_ms: NOW() - 40_000,
});
const pipeline = (name: string, more: Partial<PipelineRow> = {}): PipelineRow => ({
  pipeline: name, table: `lake.web.${name.replace(/\W/g, "_")}`, paused: false, seq: 4980, last: last(3), records_per_s: 9411.2, interval_s: 60,
  pending: null, failure: null, run: null, trouble: null, loses_in_s: null, says: "", command: null, faults: [], lag_error: null, lag_soon: false, refusal: null, waiting: null, file_error: null,
  lag: LAG, lag_at_ms: NOW() - 1500,
  lag_points: Array.from({ length: 30 }, (_, n) => 30_000 + 9000 * Math.sin(n / 3)), ...more,
});
const DROPPED = "table lake.web.dropped does not hold earlier batches of dropped, which its cursor has committed: there is no such table; 1,477,654 offsets are missing (dropped-0 [0, 492551), dropped-1 [0, 492551), dropped-2 [0, 492552)). Nothing was planned. To load them again, run `tidegate ledger reload dropped`; to go on without them, run `tidegate accept table dropped`; if the table was renamed, correct `sink.table`";
const LOST = "Failed in plan: retention deleted records before clicks read them: clicks-3 [1476450, 1477654) = 1204 offsets. Nothing was skipped. To record the loss and go on, run `tidegate accept loss clicks`.";
const UNREADABLE = "saved range tidegate/corrupt/batch/41 cannot be read: it is no JSON. Run `tidegate ledger rebuild corrupt` to restore it from the table's own history";
const TORN = "pipelines/torn.yaml: line 3, column 9: not valid YAML: mapping values are not allowed here\npipelines/torn.yaml: <b>sink</b>: is required";
const PIPELINES: PipelineRow[] = [
  pipeline("losing", { trouble: "losing", loses_in_s: 1800, says: "load waits for a slot of the pool tidegate_lake_web_losing (1 of 1 taken).", lag: { ...LAG, records_behind: 9_137_035, seconds_behind: 81_031.2, retention_left_s: 1800, held_back: 7, open_s: 4000, open_transaction: "7 records wait behind an open transaction, open for 4,000 s" }, run: { run_id: "manual__2", state: "running", since_ms: NOW() - 65_000 }, waiting: "load waits for a slot of the pool tidegate_lake_web_losing (1 of 1 taken)" }),
  pipeline("corrupt", { trouble: "unreadable", says: UNREADABLE, command: "tidegate ledger rebuild corrupt", last: null, seq: 0, faults: [UNREADABLE] }),
  pipeline("torn", { trouble: "file", says: TORN, command: "tidegate check", file_error: TORN, lag: null, lag_points: [] }),
  pipeline("clicks", { trouble: "stopped", says: LOST, command: "tidegate accept loss clicks", pending: { seq: 4981, run_id: "scheduled__2026-11-23T17:00:00+00:00", offsets: 182_113 }, failure: { run_id: "scheduled__2026-11-23T17:00:00+00:00", since_ms: NOW() - 95_000, why: LOST } }),
  pipeline("dropped", { trouble: "stopped", says: DROPPED, command: "tidegate ledger reload dropped", refusal: DROPPED }),
  pipeline("away", { trouble: "late", says: "The last run took 95 s; one starts each 60 s.", command: "tidegate plan away", last: { ...last(9), run_ms: 95_000 }, lag_at_ms: NOW() - 185_000, lag_error: AWAY }),
  pipeline(HOSTILE, { run: { run_id: "manual__1", state: "running", since_ms: NOW() - 12_000 } }),
  pipeline("many"),
  pipeline("flights"),
  pipeline("forbidden", { interval_s: null, records_per_s: null }),
  pipeline("empty", { trouble: "paused", says: "Its DAG is paused.", command: "tidegate start empty", paused: true, seq: 0, last: null, records_per_s: null }),
];

const [BEFORE, AFTER] = ["flights:clean@0c44b1d09a7e", "flights:clean@3f9a0c12b7de"] as const;
function map(dag: string, query: URLSearchParams): MapAnswer {
  const total = dag === "many" ? 1000 : dag === "empty" ? 0 : 4;
  const [limit, skip] = [Number(query.get("limit") ?? 50), Number(query.get("skip") ?? 0)];
  const last_seq = Math.min(4980, Number(query.get("before") ?? 4981) - 1);
  const first_seq = Math.max(1, last_seq - 199);
  const some = dag === "many" ? 200 : 24;
  const rows = Array.from({ length: Math.max(0, Math.min(limit, total - skip)) }, (_, n) => {
    const partition = skip + n;
    const start = 1_000_000 + partition * 777 + first_seq * 100;
    const blocks: MapBlock[] = [];
    let at = start;
    for (let k = 0; k < some; k++) {
      const size = 900 + ((k * 37 + partition * 11) % 23) * 40;
      const lost = dag === "losing" ? k === some - 1 : partition === 1 && k === 6;
      const seq = first_seq + Math.floor((k * 200) / some);
      const kind: MapBlock["kind"] = lost ? (dag === "losing" ? "lost" : "accepted") : k === some - 1 && partition < 2 ? (partition === 0 ? "loaded" : "planned") : "committed";
      const marks: MapBlock["marks"] = [...(partition === 0 && k % 9 === 4 ? ["errors" as const] : []), ...(k === 2 ? ["cold" as const] : []), ...(partition === 2 && k > 14 && k < 18 ? ["replayed" as const] : []), ...(partition === 3 && k === 0 ? ["recreated" as const] : [])];
      blocks.push({ from: at, until: at + size, marks: lost ? [] : marks, records: size, rows: kind === "committed" ? 40_000 + ((k * 79_190) % 60_000) : 0, seconds: kind === "committed" ? 10 : 0, kind, seqs: lost ? null : [seq, Math.min(last_seq, seq + (some < 100 ? 7 : 0))], batches: some < 100 ? 8 : 1, transform: kind === "committed" && !(partition === 2 && k === 12) ? (k < some / 2 ? BEFORE : AFTER) : null });
      at += size;
    }
    const newest = blocks.at(-1);
    const open = newest === undefined || newest.kind === "committed" ? at : newest.from;
    if (dag !== "away" && partition !== 3) blocks.push({ from: at, until: at + 2400, kind: "pending", seqs: null, batches: 0, transform: null, marks: [], records: 2400, rows: 0, seconds: 0 });
    return { topic: dag, partition, next_offset: open, log_start: dag === "away" ? null : start + 2500, log_end: dag === "away" ? null : partition === 3 ? at : at + 2400, behind: dag === "away" ? null : (partition === 3 ? at : at + 2400) - open, blocks };
  });
  const none = dag === "empty";
  const timed = query.get("axis") === "time";
  const [from_ms, until_ms] = [NOW() - 200 * 60_000, NOW()];
  if (timed) for (const row of rows) { row.blocks = row.blocks.filter((block) => block.seqs !== null); row.blocks.forEach((block, k) => { block.from = Math.round(from_ms + (k * 200 * 60_000) / row.blocks.length); block.until = block.from + 25_000 + ((k * 7) % 5) * 60_000; }); }
  const kinds: RunMark["kind"][] = ["loaded", "loaded", "nothing", "nothing", "replay", "loaded", "failed", "loaded", "loaded", "nothing"];
  const runs = none ? [] : Array.from({ length: 50 }, (_, n): RunMark => {
    const kind = n === 49 ? "queued" : n === 48 ? "running" : kinds[n % 10] ?? "loaded";
    const seq = kind === "loaded" || kind === "failed" ? last_seq - 50 + n : null;
    return { run_id: `scheduled__2026-11-23T${String(10 + Math.floor(n / 10))}:${String(n % 60).padStart(2, "0")}:00+00:00`, dag_id: kind === "replay" ? `${dag}__replay` : dag, kind, at_ms: NOW() - (50 - n) * 60_000, seq, records: seq === null ? null : 180_000 };
  });
  return { runs, waiting_for: [], soon: false, axis: timed ? "time" : "offset", span_ms: timed ? [from_ms, until_ms] : null, at_ms: NOW(), pipeline: dag, partitions: total, first_seq: none ? null : first_seq, last_seq: none ? null : last_seq, transforms: none ? [] : [BEFORE, AFTER], quarantine: dag === "flights" ? "lake.web.flights_quarantine" : null, faults: [], airflow: [], error: dag === "away" ? AWAY : null, error_at_ms: NOW() - 65_000, row: PIPELINES.find((each) => each.pipeline === dag) ?? pipeline(dag), rows };
}

function batch(dag: string, seq: number): BatchAnswer {
  const run_id = "scheduled__2026-11-23T17:00:00+00:00";
  return {
    at_ms: NOW(), error: dag === "away" ? "the catalog lake does not answer. Start it" : null, soon: false,
    batch: seq === 0 ? null : {
      seq, replay: null, state: "committed", run_id, seconds: 30, committed_at_ms: NOW() - 40_000, why: ["cursor to log end"], planned_at_ms: NOW() - 70_000, who: "timetable", rows: 181_990, transform: AFTER, adopted_from: seq % 2 ? null : "scheduled__2026-11-23T16:00:00+00:00",
      limits: { max_records: 200_000, max_records_per_partition: null }, rate: { policy: "pid", records: 200_500, terms: { proportional: -120.4, integral: 33.21, derivative: 0 }, reset: null, limiting: false, applied: true },
      partitions: [0, 1, 2, 3].map((partition) => ({ topic: dag, partition, from_offset: 1_000_000 + partition, until_offset: 1_045_000 + partition, from_reason: "cursor", until_reason: partition === 1 ? "max_records" : "log end" })),
      loads: [
        { run_id, rows: 181_990, kept: 0, snapshot: "8412374918237498123", committed_at_ms: NOW() - 50_000, transform: BEFORE, columns: [], quarantined: seq % 2 ? null : 12 },
        { run_id: "manual__2026-11-23T17:05:00+00:00", rows: 181_990, kept: 12, snapshot: "8412374918237498124", committed_at_ms: NOW() - 40_000, transform: AFTER, columns: ["note (string) was added"], quarantined: seq % 2 ? null : 3 },
      ],
      load: { seconds: { receipt: 0.03, create: 0.01, write: 14.2, verify: 0.2 }, records: 182_113, rows: 181_990, repeats: null, errors: seq % 2 ? 0 : 41, spark_age_s: seq % 2 ? 86_400 : 42, landed_before: false },
      replays: seq % 2 ? [] : [{ run_id: "manual__2026-11-23T18:00:00+00:00", dag_id: `${dag}__replay`, rows: 4120, kept: 0, committed_at_ms: NOW() - 20_000, transform: AFTER, columns: [], quarantined: null, snapshot: "8412374918237498125", partitions: [{ topic: dag, partition: 2, from_offset: 1_001_000, until_offset: 1_005_120 }] }],
      explained: seq % 2 ? [] : ["Run scheduled__2026-11-23T16:00:00+00:00 saved the range and did not commit it. Run scheduled__2026-11-23T17:00:00+00:00 adopted it.", "It was loaded 2 times. Each load replaced the rows of the one before."],
      timing: { records: 182_113, bound: 200_500, run_ms: 24_310, load_ms: 15_020, scheduling_delay_ms: 812, ended_at_ms: NOW() - 40_000 },
    },
  };
}

function run(dag: string, id: string): RunAnswer {
  const answer: RunAnswer = { at_ms: NOW(), kind: "batch", batch: null, replay: null, reason: null, error: null, soon: false };
  if (id === "nothing") return { ...answer, kind: "nothing", reason: "Nothing to read: no new records." };
  if (id === "broken") return { ...answer, kind: "failed", reason: "Failed in plan: no broker of kafka_default answers. Start it. The cursor did not move. The next run adopts the saved range, or plans again." };
  if (!dag.endsWith("__replay")) return { ...answer, ...batch(dag, 4980) };
  const dry = id === "dry";
  const chunks = dry ? [] : Array.from({ length: 7 }, (_, chunk) => ({ chunk, offsets: 100_000, rows: chunk < 5 ? 99_871 : null, committed_at_ms: chunk < 5 ? NOW() - 90_000 + chunk * 9000 : null }));
  const replay: ReplayRun = {
    run_id: id, pipeline: "flights", state: dry ? "success" : "running", dry_run: dry, table: "lake.web.flights", transform: AFTER, offsets: 700_000,
    note: dry ? "Dry run: nothing was changed.\nflights-0: 700,000 offsets\nin all 700,000 offsets, about 91,000,000 bytes, 7 chunks, about 96 s" : null,
    request: { versions: "=0c44b1d09a7e", table: null, parallel: 2 }, chunks, lost: dry ? ["flights-1[1000000, 1000777)"] : [],
    replaces: [{ load: "batch 4,801", offsets: 350_000, rows: 349_871, transform: BEFORE }, { load: "batch 4,802", offsets: 350_000, rows: 349_001, transform: BEFORE }],
    verdict: null, seconds: 96,
  };
  return { ...answer, kind: "replay", replay };
}

function history(dag: string, query: URLSearchParams): HistoryAnswer {
  const [hours, buckets] = [Number(query.get("hours")), Number(query.get("buckets"))];
  const until_ms = NOW();
  const from_ms = until_ms - hours * 3_600_000;
  const points = dag === "empty" ? [] : Array.from({ length: buckets }, (_, n) => ({
    at_ms: from_ms + ((n + 0.2) * (until_ms - from_ms)) / buckets, seq: 4980 - (buckets - n) * 3, batches: 3, lag: Math.round(40_000 + 30_000 * Math.sin(n / 9)), records: 3 * (150_000 + 1000 * (n % 37)),
    bound: n > 40 && n < 50 ? null : 200_000 + 500 * (n % 11), run_s: n < 20 ? null : 18 + (n % 13), load_s: n < 20 ? null : 11 + (n % 7), rows: 170_000,
  }));
  const forecast = dag === "empty" ? { next_bound: null, bound_by: null, interval_s: 60, arrival_per_s: null, drain_s: null, verdict: null } : { next_bound: 214_000, bound_by: "the rate policy", interval_s: 60, arrival_per_s: 3120.5, drain_s: 96, verdict: "the pipeline keeps up: 3,120 records/s arrive, and a run every 60 s loads at most 9,411 records/s; it would keep up with an interval of 12 s or longer" };
  return { at_ms: until_ms, from_ms, until_ms, points, forecast, lag: 37_035, complete: hours < 700, faults: [], error: null, soon: false };
}

const QUARANTINE: QuarantineAnswer = {
  at_ms: NOW(), error: null, soon: false,
  quarantine: {
    pipeline: "flights", table: "lake.web.flights_quarantine", records: 1342, left: 12, gone: 40, more: 3, replay: "tidegate replay flights --from flights:0:1000441 --until flights:0:1398122 --from flights:2:1200004 --until flights:2:1200005",
    reasons: [
      { reason: "distance does not fit int", rejected_by: "contract", records: 1301, first: "flights-0 at 1000441", last: "flights-0 at 1398121", sample: '{"carrier": "UA", "flight": 1545, "distance": 3000000000}' },
      { reason: "not JSON", rejected_by: "decode", records: 40, first: "flights-0 at 1000451", last: "flights-0 at 1000490", sample: "\\xff\\xfe<?xml version='1.0'?>" },
      { reason: "<script>alert(1)</script> is no carrier", rejected_by: "transform", records: 1, first: "flights-2 at 1200004", last: "flights-2 at 1200004", sample: "no value" },
    ],
  },
};

const BROKEN: BrokenAnswer = {
  at_ms: NOW(), error: null, soon: false,
  broken: {
    records: [
      { place: "flights-0 at 1000451", reason: "not JSON" },
      { place: "flights-0 at 1000497", reason: `${HOSTILE} is no carrier` },
      { place: "flights-2 at 1000113", reason: `distance: ${"9".repeat(180)} does not fit int, nor does anything else of ${"this very long text ".repeat(30)}` },
    ],
    more: true, partitions: ["flights-0", "flights-2"],
    commands: ['tidegate sql "SELECT * FROM lake.web.flights WHERE _error IS NOT NULL AND (_kafka_topic = \'flights\' AND _kafka_partition = 0 AND _kafka_offset >= 1000000 AND _kafka_offset < 1045000 OR _kafka_topic = \'flights\' AND _kafka_partition = 2 AND _kafka_offset >= 1000002 AND _kafka_offset < 1045002) ORDER BY _kafka_offset LIMIT 100"'],
  },
};

function tasks(): Task[] {
  const at = (s: number) => new Date(NOW() - 70_000 + s * 1000).toISOString();
  const took: [string, number, number][] = [["plan", 0, 2.1], ["load", 3.4, 18.4], ["commit", 20, 21.2], ["catch_up", 22, 22.4]];
  return took.map(([task_id, from, until]) => ({ task_id, start_date: at(from), end_date: at(until) }));
}

const runs = new Map<string, Made>();
const asRun = ({ id, conf, at }: Made): Run => {
  const age = NOW() - at;
  const state = age < 1500 ? "queued" : age < 4000 ? "running" : "success";
  const note = state === "success" ? `${conf.dry_run ? "Would read" : "Read"} ${JSON.stringify(conf.offsets)}: 4,120 rows in 1 chunk` : null;
  return { dag_run_id: id, state, note };
};
function airflow(method: string, path: string, body: string): [number, unknown] {
  const [, , , dag = "", , run = ""] = path.split("/").map(decodeURIComponent);
  if (dag.startsWith("forbidden")) return [403, { detail: "Forbidden" }];
  if (path.endsWith("/taskInstances")) return [200, { task_instances: tasks() }];
  const known = runs.get(run);
  if (method !== "POST") return known ? [200, asRun(known)] : [404, { detail: "no such run" }];
  const made: Made = { id: `manual__${NOW()}`, conf: (JSON.parse(body) as Pick<Made, "conf">).conf, at: NOW() };
  runs.set(made.id, made);
  return [200, asRun(made)];
}

/** Status and body. */
export function answer(method: string, path: string, query: URLSearchParams, body: string): [number, unknown] {
  if (path.startsWith("api/v2/")) return airflow(method, path, body);
  const [, , what, id = "", view, ...rest] = path.split("/").map(decodeURIComponent);
  if (what === "pipelines") return [200, { at_ms: NOW(), pipelines: PIPELINES, airflow: [], empty: "" } satisfies PipelinesAnswer];
  if (id === "forbidden") return [403, { detail: "Forbidden" }];
  if (id === "none") return [404, { message: "none is no pipeline of Tidegate", fix: "Open the page of a pipeline's own DAG" }];
  if (view === "map") return [200, map(id, query)];
  if (rest[1] === "broken") return [200, BROKEN];
  if (view === "batches") return [200, batch(id, Number(rest[0]))];
  if (view === "runs") return [200, run(id, rest.join("/"))];
  if (view === "history") return [200, history(id, query)];
  if (view === "quarantine") return [200, QUARANTINE];
  return [404, { message: "there is no such page", fix: "Follow a link of Airflow's UI" }];
}
