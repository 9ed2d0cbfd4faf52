import { useState } from "react";

import type { PartitionRow } from "./answers";
import { type Run, RequestFailed, runOf, runPage, trigger } from "./api";
import { count } from "./format";
import { type Span, replayable, versionOf } from "./geometry";
import { Refused } from "./Page";
import { Panel } from "./Panel";
import { useAnswer } from "./useAnswer";

export interface ChosenRange extends Span {
  topic: string;
  partition: number;
}

/** What is to be replayed: offsets of a partition, or all that a version of the transform has loaded. */
export type Chosen = ChosenRange | { transform: string };

const ENDED = ["success", "failed"];
const nameOf = (of: { topic: string; partition: number }): string => `${of.topic}-${of.partition}`;

interface Props {
  dagId: string;
  /** What the form is filled with. */
  of: Chosen;
  /** The partitions that can be chosen instead. */
  rows: PartitionRow[];
  onEdit: (chosen: Chosen) => void;
  onClose: () => void;
}

/** A replay: a dry run says what it would do, and once it has succeeded, the replay can be started. */
export function Replay({ dagId, of, rows, onEdit, onClose }: Props) {
  const [chosen, setChosen] = useState(of);
  const [tried, setTried] = useState<{ what: string; run: Run; succeeded: boolean }>();
  const [started, setStarted] = useState<Run>();
  const [refused, setRefused] = useState<RequestFailed>();
  const [busy, setBusy] = useState(false);
  const what = JSON.stringify(chosen);
  const valid = "transform" in chosen || isRange(chosen);
  const replayDag = `${dagId}__replay`;

  const ask = async (dry: boolean) => {
    setBusy(true);
    setRefused(undefined);
    try {
      const run = await trigger(replayDag, { ...conf(chosen), ...(dry ? { dry_run: true } : {}) });
      if (dry) {
        setTried({ what, run, succeeded: false });
        setStarted(undefined);
      } else setStarted(run);
    } catch (error) {
      setRefused(error instanceof RequestFailed ? error : new RequestFailed(String(error)));
    }
    setBusy(false);
  };

  return (
    <Panel name="Replay" onClose={onClose}>
      <h2>{"transform" in chosen ? `Replay what ${chosen.transform} has loaded` : "Replay a range"}</h2>
      {!("transform" in chosen) && (
        <RangeFields
          of={chosen}
          rows={rows}
          onEdit={(edited) => {
            setChosen(edited);
            onEdit(edited);
          }}
        />
      )}
      <div className="bar">
        <button type="button" className="main" disabled={!valid || busy} onClick={() => void ask(true)}>
          Dry run
        </button>
        <button
          type="button"
          className={tried?.succeeded === true ? "main" : ""}
          disabled={!valid || busy || tried?.what !== what || !tried.succeeded || started !== undefined}
          onClick={() => void ask(false)}
        >
          Replay
        </button>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
      <p className="muted">
        The rows of these offsets, and no others, are replaced by what the transform makes of the same records now. The cursor does not
        move. A dry run has to succeed first.
      </p>
      <Refused error={refused} />
      {tried !== undefined && (
        <Progress
          key={tried.run.dag_run_id}
          what="Dry run"
          dagId={replayDag}
          run={tried.run}
          onSuccess={() => { setTried({ ...tried, succeeded: true }); }}
        />
      )}
      {started !== undefined && <Progress key={started.dag_run_id} what="Replay" dagId={replayDag} run={started} />}
    </Panel>
  );
}

const isRange = ({ from, until }: Span): boolean => Number.isSafeInteger(from) && Number.isSafeInteger(until) && from >= 0 && from < until;

/** The parameters of the replay's DAG. */
const conf = (chosen: Chosen): object =>
  "transform" in chosen
    ? { versions: `=${versionOf(chosen.transform)}` }
    : { offsets: { [chosen.topic]: { [chosen.partition]: [chosen.from, chosen.until] } } };

function RangeFields({ of, rows, onEdit }: { of: ChosenRange; rows: PartitionRow[]; onEdit: (edited: ChosenRange) => void }) {
  const row = rows.find((each) => nameOf(each) === nameOf(of));
  const held = row === undefined ? undefined : replayable(row);
  const beyond = isRange(of) && held !== undefined && (of.until > held.until || of.from < (row?.log_start ?? 0));
  return (
    <>
      <div className="fields">
        <label>
          Partition
          <select
            value={nameOf(of)}
            onChange={(event) => {
              const other = rows.find((each) => nameOf(each) === event.target.value);
              if (other === undefined) return;
              onEdit({ topic: other.topic, partition: other.partition, ...(replayable(other) ?? { from: 0, until: 0 }) });
            }}
          >
            {row === undefined && <option>{nameOf(of)}</option>}
            {rows.map((each) => (
              <option key={nameOf(each)}>{nameOf(each)}</option>
            ))}
          </select>
        </label>
        <label>
          From
          <input type="number" min={0} value={shown(of.from)} onChange={(event) => { onEdit({ ...of, from: event.target.valueAsNumber }); }} />
        </label>
        <label>
          Until (exclusive)
          <input type="number" min={1} value={shown(of.until)} onChange={(event) => { onEdit({ ...of, until: event.target.valueAsNumber }); }} />
        </label>
      </div>
      <p className="muted">
        {isRange(of) ? `${count(of.until - of.from)} offsets.` : "No range: the end has to be after the start."}
        {held !== undefined && ` ${count(held.from)} to ${count(held.until)} can be replayed of what is shown.`}
      </p>
      {beyond && <div className="note warn">Beyond the cursor, or no longer in the log: the dry run says what becomes of that.</div>}
    </>
  );
}

const shown = (offset: number): number | "" => (Number.isNaN(offset) ? "" : offset);

function Progress({ what, dagId, run, onSuccess }: { what: string; dagId: string; run: Run; onSuccess?: () => void }) {
  const [ended, setEnded] = useState(false);
  const asked = useAnswer(
    async (signal) => {
      const now = await runOf(dagId, run.dag_run_id, signal);
      if (ENDED.includes(now.state) && !signal.aborted) {
        setEnded(true);
        if (now.state === "success") onSuccess?.();
      }
      return now;
    },
    run.dag_run_id,
    ended ? null : 2,
  );
  const now = asked.answer ?? run;
  return (
    <div className={`note ${now.state === "failed" ? "bad" : ""}`} role="status">
      {what}: <b>{now.state}</b> <a href={runPage(dagId, run.dag_run_id)}>{run.dag_run_id}</a>
      {now.note !== null && <div style={{ whiteSpace: "pre-wrap" }}>{now.note}</div>}
      {now.state === "queued" && <div className="muted">If it stays queued: {dagId} may be paused, or wait for a free slot.</div>}
      <Refused error={asked.error} />
    </div>
  );
}
