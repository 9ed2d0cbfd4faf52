// Made from tidegate.views.pages by `make docs`; do not edit.

/** A run that is queued or running, since when (epoch ms). */
export interface ActiveRun {
  run_id: string;
  state: string;
  since_ms: number;
}

/** A batch in full. */
export interface Batch {
  seq: number;
  replay: string | null;
  state: BatchState;
  run_id: string;
  /** Of the newest load; null where it is not loaded, as `transform` and `committed_at_ms`. */
  rows: number | null;
  /** From its plan to the commit of its first load; null where one of the two is not known. */
  seconds: number | null;
  transform: string | null;
  /** The oldest first. */
  loads: LoadRow[];
  committed_at_ms: number | null;
  adopted_from: string | null;
  /** The reasons of its ranges' bounds, each once. */
  why: string[];
  /** Who triggered the run, or its kind; null where that is no longer known. */
  who: string | null;
  planned_at_ms: number;
  /** What bounded it when it was planned, by the setting. */
  limits: Record<string, unknown>;
  /** What the rate policy allowed; null where there is none. */
  rate: RateBound | null;
  partitions: PlannedRange[];
  /** What it took; null where that is not known any more. */
  timing: BatchTiming | null;
  /** What its newest load handed on; null where that is not known any more. */
  load: LoadFigures | null;
  /** The oldest first. */
  replays: ReplayRow[];
  /** What was adopted, replaced or loaded again, and why, in sentences. */
  explained: string[];
}

/** A batch; null where nothing is saved of it. */
export interface BatchAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  batch: Batch | null;
}

/** How far a batch is; each state is what anybody can read, from Variables and the table. */
export type BatchState = "new" | "planned" | "loaded" | "committed";

/** How many records a batch had, and how long it took. */
export interface BatchTiming {
  /** Offsets of the batch's ranges; the topic may hold fewer records, where it has gaps. */
  records: number;
  /** The most records that the policy allowed the batch; null where it did not limit the batch. */
  bound: number | null;
  /** From the start of its run until it was committed, without the wait before; ms. */
  run_ms: number;
  /** Of the Spark job; ms. */
  load_ms: number;
  /** From when the run was due until it started; ms. */
  scheduling_delay_ms: number;
  /** When it was committed; epoch ms. */
  ended_at_ms: number;
}

/** The first broken records of a batch, in the order of the log. */
export interface Broken {
  /** Of those that are in a table or a quarantine now: a replay may have loaded others again. */
  records: BrokenRecord[];
  /** Whether there are more. */
  more: boolean;
  /** Those that have any, by name, as far as is read. */
  partitions: string[];
  /** Each shows those of one table. */
  commands: string[];
}

/** The first broken records of a batch; null where they are not known, or rows are known by their batch. */
export interface BrokenAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  broken: Broken | null;
}

/** Where a record is in the log, in words, and what is wrong with it. */
export interface BrokenRecord {
  place: string;
  reason: string;
}

/** A chunk of a replay, and the newest load of it: when it was committed (epoch ms), its rows; null where there is none. */
export interface ChunkRow {
  chunk: number;
  offsets: number;
  rows: number | null;
  committed_at_ms: number | null;
}

/** The newest run that failed since the last success, since when it ran (epoch ms), and why. */
export interface Failure {
  run_id: string;
  since_ms: number;
  why: string;
}

/** What is to be expected, as far as it is known. */
export interface Forecast {
  /** The most records that the rate policy and `max_records` allow the next batch. */
  next_bound: number | null;
  /** Which of the two. */
  bound_by: string | null;
  /** Seconds between two runs. */
  interval_s: number | null;
  /** Records/s that arrive. */
  arrival_per_s: number | null;
  /** Seconds until what waits is loaded; null also where it grows. */
  drain_s: number | null;
  /** Whether the pipeline keeps up, in a sentence. */
  verdict: string | null;
}

/** The batches of a span of time, in order, and what is to be expected. */
export interface HistoryAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  from_ms: number;
  /** The end of the span (exclusive). */
  until_ms: number;
  points: Point[];
  forecast: Forecast;
  /** Records that wait now; null where that is not known. */
  lag: number | null;
  /** Whether all batches of that time are in it; the rest is being read. */
  complete: boolean;
  /** Saved state that cannot be read. */
  faults: string[];
}

/** The newest lag of a pipeline that is known; null where none is, as before the first batch. */
export interface LagAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  lag: LagView | null;
}

/** The lag of a pipeline. */
export interface LagView {
  pipeline: string;
  /** Sorted. */
  partitions: PartitionLag[];
  /** All partitions together. */
  total: TotalLag;
  /** Why its table needs maintenance; null where it does not. */
  maintenance: string | null;
  /** That its table is lost; null where it is not. */
  lost: string | null;
}

/** What one load took and saw; null is what is not known. */
export interface LoadFigures {
  /** By phase. */
  seconds: Record<string, number>;
  /** Read from Kafka. */
  records: number | null;
  /** Written. */
  rows: number | null;
  /** Of the records, left out as repeats. */
  repeats: number | null;
  /** Of the rows, broken records. */
  errors: number | null;
  /** How long the Spark application had been running when the load began. */
  spark_age_s: number | null;
  /** Whether nothing was written, since an earlier try had landed. */
  landed_before: boolean;
}

/** A commit of the table: of a batch, or of a chunk of a replay. */
export interface LoadRow {
  run_id: string;
  rows: number;
  /** Older rows of the same data files, which were written again as they were. */
  kept: number;
  /** Its id, as text: it is larger than the whole numbers that JavaScript has. */
  snapshot: string;
  committed_at_ms: number;
  transform: string;
  /** What it changed of the table's columns, each in words. */
  columns: string[];
  /** Records that it has rejected; null where the pipeline had no quarantine. */
  quarantined: number | null;
}

/** The range map of some batches and of a page of partitions, and the last runs, the oldest first. */
export interface MapAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  pipeline: string;
  axis: "offset" | "time";
  /** From when until when all rows are (epoch ms); null where time is not the axis. */
  span_ms: [number, number] | null;
  /** Of all pages. */
  partitions: number;
  /** The pipeline at a glance, as in the list. */
  row: PipelineRow;
  /** Those that have lost the most first, then those that are the furthest behind. */
  rows: PartitionRow[];
  first_seq: number | null;
  last_seq: number | null;
  transforms: string[];
  runs: RunMark[];
  /** The table of rejected records; null where the pipeline has none. */
  quarantine: string | null;
  /** Saved state that cannot be read. */
  faults: string[];
  /** When what is shown of the log, or of the table, was answered that `error` is about (epoch ms); null where nothing is shown of it. */
  error_at_ms: number | null;
  /** What has not answered yet, of which nothing is known. */
  waiting_for: string[];
  /** What keeps Airflow from running tasks. */
  airflow: string[];
}

/** Neighbouring offsets of a partition, from one until another (exclusive), or times (epoch ms) where that is the axis. */
export interface MapBlock {
  from: number;
  until: number;
  kind: "lost" | "planned" | "loaded" | "accepted" | "pending" | "committed";
  /** The first and the last batch that it has offsets of; null of offsets that belong to no batch. */
  seqs: [number, number] | null;
  /** How many begin in it. */
  batches: number;
  /** The version that loaded them last, by a replay or by the schedule; null where there is none, or several. */
  transform: string | null;
  marks: ("errors" | "cold" | "recreated" | "replayed")[];
  /** How many offsets there are. */
  records: number;
  /** Of the batches as a whole, all partitions together; 0 where that is not known, as `seconds`. */
  rows: number;
  /** Of the same. */
  seconds: number;
}

/** The records of one partition with `from_offset <= offset < until_offset`; equal bounds are a legal, empty range. */
export interface OffsetRange {
  topic: string;
  partition: number;
  from_offset: number;
  until_offset: number;
}

/** How far behind one partition is. */
export interface PartitionLag {
  topic: string;
  partition: number;
  /** The next to read: the cursor's, or the first of the log where the cursor does not know the partition. */
  next_offset: number;
  /** The end of the log (exclusive). */
  latest: number;
  /** Offsets between the two; where the log has gaps, fewer records. */
  records_behind: number;
  /** Age of the next unread record; null when there is none (nothing behind, or gaps only). */
  seconds_behind: number | null;
  /** Until retention by time may delete that record, or else the first that is held back, 0 when it may already, or already has; null when there is none, when the topic keeps records for ever or is only compacted, or its settings may not be read. */
  retention_left_s: number | null;
  /** Offsets beyond `latest` that an open transaction keeps from `read_committed`. */
  held_back: number;
  /** Age of that transaction's first record. */
  open_s: number | null;
}

/** One partition of the map; null is what is not known. */
export interface PartitionRow {
  topic: string;
  partition: number;
  /** The cursor's. */
  next_offset: number | null;
  /** The first offset that the log holds. */
  log_start: number | null;
  /** The log's end (exclusive). */
  log_end: number | null;
  /** Offsets that are not committed yet. */
  behind: number | null;
  /** Sorted and disjoint. */
  blocks: MapBlock[];
}

/** A saved range of the next batch, which the next run adopts where its own run does not load it. */
export interface Pending {
  seq: number;
  run_id: string;
  offsets: number;
}

/** One pipeline; null is what is not known, or what there is none of. */
export interface PipelineRow {
  pipeline: string;
  /** The table that it loads. */
  table: string;
  paused: boolean;
  /** Its last batch; 0 before the first. */
  seq: number;
  /** What that took. */
  last: BatchTiming | null;
  /** Of the batches that are known, over their runs. */
  records_per_s: number | null;
  /** Seconds between two runs; null where they start when there is something to read. */
  interval_s: number | null;
  pending: Pending | null;
  failure: Failure | null;
  run: ActiveRun | null;
  /** What needs attention most. */
  trouble: "losing" | "unreadable" | "file" | "stopped" | "waiting" | "late" | "paused" | null;
  /** Seconds until retention deletes records that no run will have read by then. */
  loses_in_s: number | null;
  /** What is so, in one sentence; the whole of an error is there too. */
  says: string;
  /** What to run then. */
  command: string | null;
  /** Saved state that cannot be read. */
  faults: string[];
  lag: TotalLag | null;
  /** When the lag was measured (epoch ms). */
  lag_at_ms: number | null;
  /** Why there is no newer lag. */
  lag_error: string | null;
  /** Whether a newer one is on its way. */
  lag_soon: boolean;
  /** Why brokers or the table will refuse the next run. */
  refusal: string | null;
  /** Records behind when each of the last batches was planned, the oldest first. */
  lag_points: number[];
  /** What its active run waits for. */
  waiting: string | null;
  /** Why its file cannot be read. */
  file_error: string | null;
}

/** The pipelines that the user may see, those that need attention first, and what keeps Airflow from running tasks. */
export interface PipelinesAnswer {
  at_ms: number;
  pipelines: PipelineRow[];
  airflow: string[];
  empty: string;
}

/** Offsets `[from_offset, until_offset)` of a partition, and why they begin and end there; null where that is not known. */
export interface PlannedRange {
  topic: string;
  partition: number;
  from_offset: number;
  until_offset: number;
  from_reason: string | null;
  until_reason: string | null;
}

/** One batch, or several that were planned one after the other (`batches` of them, the last one is `seq`). */
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

/** What is in the quarantine of a pipeline; null where that is not known, or it has none. */
export interface QuarantineAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  quarantine: QuarantineView | null;
}

/** What is in the quarantine of a pipeline; its fields are its JSON. */
export interface QuarantineView {
  pipeline: string;
  /** The quarantine. */
  table: string;
  /** How many records count as rejected. */
  records: number;
  /** How many more do not count: their loads were killed, have yet to commit, or were replaced. */
  left: number;
  /** How many of `records` are not in the log any more, so that no replay reads them. */
  gone: number;
  /** The commonest first. */
  reasons: ReasonView[];
  /** How many reasons there are beside these. */
  more: number;
  /** The command that loads them again; null where the log holds none of them. */
  replay: string | null;
}

/** The most records that a rate policy allows a batch, and why. */
export interface RateBound {
  /** The policy's name. */
  policy: string;
  /** The bound, at least 1. */
  records: number;
  /** What the policy computed it from, by name (`RatePolicy.terms`). */
  terms: Record<string, number>;
  /** Why the policy started anew with this batch; null where it did not. */
  reset: string | null;
  /** Whether the bound is what ended the batch: more records waited. */
  limiting: boolean;
  /** Whether it was applied; not where a trigger asks for a range of its own. */
  applied: boolean;
}

/** Records in quarantine that have one reason; its fields are its JSON. */
export interface ReasonView {
  /** Why they were rejected, without what cannot be printed. */
  reason: string;
  /** `decode`, `contract` or `transform`. */
  rejected_by: string;
  /** How many they are. */
  records: number;
  /** The first of them: topic, partition and offset. */
  first: string;
  /** The last of them. */
  last: string;
  /** The first one's value, shortened, without what cannot be printed. */
  sample: string;
}

/** What a replay replaces of one earlier load: offsets, and about so many rows. */
export interface Replaced {
  load: string;
  offsets: number;
  rows: number;
  transform: string;
}

/** A later load of offsets of a batch that no schedule made. */
export interface ReplayRow {
  run_id: string;
  rows: number;
  /** Older rows of the same data files, which were written again as they were. */
  kept: number;
  /** Its id, as text: it is larger than the whole numbers that JavaScript has. */
  snapshot: string;
  committed_at_ms: number;
  transform: string;
  /** What it changed of the table's columns, each in words. */
  columns: string[];
  /** Records that it has rejected; null where the pipeline had no quarantine. */
  quarantined: number | null;
  /** Whose run replayed: a date backfill is a run of the pipeline's own DAG. */
  dag_id: string;
  /** The offsets of the batch that it loaded. */
  partitions: OffsetRange[];
}

/** A run that replays, or a dry run; null is what is not known. */
export interface ReplayRun {
  run_id: string;
  /** Whose. */
  pipeline: string;
  state: string;
  /** What Airflow has noted of the run. */
  note: string | null;
  dry_run: boolean;
  table: string | null;
  transform: string | null;
  /** That it replays in all. */
  offsets: number | null;
  /** What was asked for, by name. */
  request: Record<string, unknown>;
  /** None where nothing is saved, as of a dry run. */
  chunks: ChunkRow[];
  /** What it replaces, or would. */
  replaces: Replaced[];
  /** Ranges that the log no longer holds. */
  lost: string[];
  /** An estimate of what the loads take. */
  seconds: number | null;
  /** What it found in the end. */
  verdict: Record<string, unknown> | null;
}

/** One DAG run: its batch, its replay or a reason, by its kind; with a batch, the reason is why the run has failed. */
export interface RunAnswer {
  /** When it was made, or brokers were asked for the lag (epoch ms). */
  at_ms: number;
  /** Why there is nothing newer, and what to do about it. */
  error: string | null;
  /** Whether a newer answer is on its way. */
  soon: boolean;
  batch: Batch | null;
  kind: "batch" | "nothing" | "failed" | "planning" | "replay" | "other";
  replay: ReplayRun | null;
  reason: string | null;
}

/** One run. `seq` and `records` are those of the batch that it saved, null where it saved none; `at_ms` is epoch ms. */
export interface RunMark {
  run_id: string;
  dag_id: string;
  kind: "loaded" | "nothing" | "failed" | "running" | "queued" | "replay";
  at_ms: number;
  seq: number | null;
  records: number | null;
}

/** All partitions together: the sums of the records, the most seconds, the least time left (null: of none known). */
export interface TotalLag {
  partitions: number;
  records_behind: number;
  seconds_behind: number | null;
  retention_left_s: number | null;
  held_back: number;
  open_s: number | null;
  open_transaction: string | null;
}
