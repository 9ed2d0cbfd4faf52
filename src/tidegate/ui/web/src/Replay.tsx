import { useEffect, useState } from "react";

import { type Run, RequestFailed, address, part, runOf, trigger } from "./api";
import { count } from "./format";
import { type Span, versionOf } from "./geometry";
import { Refused } from "./Page";
import { useAnswer } from "./useAnswer";

/** What is to be replayed: offsets of a partition, or all that a version of the transform has loaded. */
export type Chosen = (Span & { topic: string; partition: number }) | { transform: string };

/** A replay: a dry run says what it would do, and then it can be started. */
export function Replay({ dagId, of, onClose }: { dagId: string; of: Chosen; onClose: () => void }) {
  const isVersion = "transform" in of;
  const [from, setFrom] = useState(isVersion ? 0 : of.from);
  const [until, setUntil] = useState(isVersion ? 1 : of.until);
  const [tried, setTried] = useState<{ range: string; run: Run }>();
  const [succeeded, setSucceeded] = useState<string>();
  const [started, setStarted] = useState<Run>();
  const [refused, setRefused] = useState<RequestFailed>();
  const [busy, setBusy] = useState(false);
  const range = `${from}-${until}`;
  const valid = Number.isSafeInteger(from) && Number.isSafeInteger(until) && from >= 0 && from < until;

  const ask = async (dry: boolean) => {
    setBusy(true);
    setRefused(undefined);
    try {
      const what = isVersion
        ? { versions: `=${versionOf(of.transform)}` }
        : { offsets: { [of.topic]: { [of.partition]: [from, until] } } };
      const run = await trigger(`${dagId}__replay`, { ...what, ...(dry ? { dry_run: true } : {}) });
      if (dry) setTried({ range, run });
      else setStarted(run);
    } catch (error) {
      setRefused(error instanceof RequestFailed ? error : new RequestFailed(String(error)));
    }
    setBusy(false);
  };

  return (
    <section className="panel" aria-label="Replay">
      <h2>{isVersion ? `Replay what ${of.transform} has loaded` : `Replay ${of.topic}-${of.partition}`}</h2>
      {!isVersion && <div className="bar">
        <label>
          From
          <input type="number" min={0} value={from} onChange={(event) => { setFrom(event.target.valueAsNumber); }} />
        </label>
        <label>
          Until (exclusive)
          <input type="number" min={1} value={until} onChange={(event) => { setUntil(event.target.valueAsNumber); }} />
        </label>
        <span className="muted">{valid ? `${count(until - from)} offsets` : "no range"}</span>
      </div>}
      <div className="bar">
        <button type="button" className="main" disabled={!valid || busy} onClick={() => void ask(true)}>
          Dry run
        </button>
        <button type="button" disabled={!valid || busy || succeeded !== range || started !== undefined} onClick={() => void ask(false)}>
          Replay
        </button>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
      <p className="muted">The rows of these offsets, and no others, are replaced by what the transform makes of the same records now. The cursor does not move.</p>
      <Refused error={refused} />
      {tried !== undefined && <Progress
          what="Dry run"
          dagId={`${dagId}__replay`}
          run={tried.run}
          onSuccess={() => { setSucceeded(tried.range); }}
        />}
      {started !== undefined && <Progress what="Replay" dagId={`${dagId}__replay`} run={started} />}
    </section>
  );
}

function Progress({ what, dagId, run, onSuccess }: { what: string; dagId: string; run: Run; onSuccess?: () => void }) {
  const asked = useAnswer(() => runOf(dagId, run.dag_run_id), run.dag_run_id, 2);
  const now = asked.answer ?? run;
  const succeeded = now.state === "success";
  useEffect(() => {
    if (succeeded) onSuccess?.();
  }, [succeeded]);
  return (
    <div className="note" role="status">
      {what}: <b>{now.state}</b> <a href={address(`dags/${part(dagId)}/runs/${part(run.dag_run_id)}`)}>{run.dag_run_id}</a>
      {now.note !== null && <div style={{ whiteSpace: "pre-wrap" }}>{now.note}</div>}
      <Refused error={asked.error} />
    </div>
  );
}
