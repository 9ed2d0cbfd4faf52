import { useCallback, useState } from "react";

import { type BatchAnswer, type Block, type RangeMap, type Row, type Timing, part, view } from "./api";
import { BatchDetails } from "./BatchDetails";
import { count, duration, time } from "./format";
import { type Span, newestOf } from "./geometry";
import { Legend, Patterns } from "./kinds";
import { MapRow } from "./MapRow";
import { Asking, Faults, Page, Refused } from "./Page";
import { type Chosen, Replay } from "./Replay";
import { token } from "./style";
import { useAnswer } from "./useAnswer";

const PARTITIONS = 25;
const COLUMNS = 200;

/** The range map of a pipeline. */
export function Ranges({ dagId = "" }: { dagId?: string }) {
  const [before, setBefore] = useState<number>();
  const [skip, setSkip] = useState(0);
  const [seq, setSeq] = useState<number>();
  const [replay, setReplay] = useState<Chosen>();
  const query = new URLSearchParams({ columns: String(COLUMNS), limit: String(PARTITIONS), skip: String(skip) });
  if (before !== undefined) query.set("before", String(before));
  const path = `dags/${part(dagId)}/map?${query.toString()}`;
  const asked = useAnswer(() => view<RangeMap>(path), path, 10);
  const map = asked.answer;

  const open = useCallback((block: Block) => {
    if (block.seqs !== null) setSeq(block.seqs[1]);
  }, []);
  const choose = useCallback((row: Row, span: Span) => {
    setReplay({ topic: row.topic, partition: row.partition, ...span });
  }, []);

  return (
    <Page title="Ranges">
      <Patterns />
      <Asking asked={asked} />
      <Refused error={map?.error} />
      <Faults faults={map?.faults ?? []} />
      {map !== undefined && (
        <>
          <div className="bar">
            <span>
              {map.first_seq === null ? "No batch yet" : `Batches ${count(map.first_seq)} to ${count(map.last_seq ?? map.first_seq)}`}
            </span>
            <button type="button" disabled={map.first_seq === null || map.first_seq <= 1} onClick={() => { setBefore(map.first_seq ?? undefined); }}>
              Older
            </button>
            <button type="button" disabled={before === undefined} onClick={() => { setBefore(undefined); }}>
              Newest
            </button>
            {map.partitions > PARTITIONS && (
              <>
                <span>
                  Partitions {count(skip + 1)} to {count(Math.min(map.partitions, skip + PARTITIONS))} of {count(map.partitions)}
                </span>
                <button type="button" disabled={skip === 0} onClick={() => { setSkip(Math.max(0, skip - PARTITIONS)); }}>
                  Further behind
                </button>
                <button type="button" disabled={skip + PARTITIONS >= map.partitions} onClick={() => { setSkip(skip + PARTITIONS); }}>
                  Less behind
                </button>
              </>
            )}
          </div>
          <Legend transforms={map.transforms} />
          <OlderVersions map={map} onChoose={(transform) => { setReplay({ transform }); }} />
          {map.rows.map((row) => (
            <MapRow key={`${row.topic}-${row.partition}`} row={row} transforms={map.transforms} onBlock={open} onRange={choose} />
          ))}
          <p className="muted">
            Drag over a part of a row to replay it; click on a block to see its batch. By keyboard: arrow keys, Enter, and R to replay.
          </p>
        </>
      )}
      {replay !== undefined && (
        <Replay
          key={JSON.stringify(replay)}
          dagId={dagId}
          of={replay}
          onClose={() => { setReplay(undefined); }}
        />
      )}
      {seq !== undefined && <BatchPanel dagId={dagId} seq={seq} onClose={() => { setSeq(undefined); }} />}
      <Trend dagId={dagId} />
    </Page>
  );
}

function OlderVersions({ map, onChoose }: { map: RangeMap; onChoose: (transform: string) => void }) {
  const newest = newestOf(map.rows);
  const older = map.transforms.filter((each) => each !== newest);
  if (newest === undefined || older.length === 0) return null;
  return (
    <div className="bar">
      {older.map((each) => (
        <button key={each} type="button" onClick={() => { onChoose(each); }}>
          Replay what {each} has loaded
        </button>
      ))}
    </div>
  );
}

function BatchPanel({ dagId, seq, onClose }: { dagId: string; seq: number; onClose: () => void }) {
  const path = `dags/${part(dagId)}/batches/${seq}`;
  const asked = useAnswer(() => view<BatchAnswer>(path), path, 10);
  return (
    <section className="panel" aria-label={`Batch ${seq}`}>
      <Asking asked={asked} />
      {asked.answer !== undefined && <BatchDetails dagId={dagId} of={asked.answer} />}
      <button type="button" onClick={onClose}>
        Close
      </button>
    </section>
  );
}

function Trend({ dagId }: { dagId: string }) {
  const path = `dags/${part(dagId)}/trend`;
  const asked = useAnswer(() => view<{ batches: Timing[] }>(path), path, 10);
  const batches = asked.answer?.batches ?? [];
  if (batches.length < 2) return null;
  const first = batches[0];
  const last = batches[batches.length - 1];
  return (
    <section aria-label="The last batches">
      <h2>The last {batches.length} batches</h2>
      <Bars name="Records" values={batches.map((each) => each.records)} bounds={batches.map((each) => each.bound)} show={count} />
      <Bars name="Run" values={batches.map((each) => each.run_s)} show={duration} />
      <p className="muted">
        {first === undefined ? "" : time(first.ended_at_ms)} to {last === undefined ? "" : time(last.ended_at_ms)}
      </p>
    </section>
  );
}

function Bars({ name, values, bounds, show }: { name: string; values: number[]; bounds?: (number | null)[]; show: (value: number) => string }) {
  const most = Math.max(1e-9, ...values, ...(bounds ?? []).map((bound) => bound ?? 0));
  const width = 1000 / values.length;
  const newest = values[values.length - 1] ?? 0;
  return (
    <div className="row">
      <span>{name}</span>
      <svg viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label={`${name}: the last ${show(newest)}, the most ${show(Math.max(...values))}`} style={{ cursor: "default" }}>
        {values.map((value, n) => (
          <rect key={n} x={n * width} width={Math.max(0.5, width - 1)} y={24 - (24 * value) / most} height={(24 * value) / most} fill={token("blue-solid")}>
            <title>{show(value)}</title>
          </rect>
        ))}
        {bounds?.map((bound, n) =>
          bound === null ? null : <rect key={n} x={n * width} width={width} y={24 - (24 * bound) / most} height="1" fill={token("orange-solid")} />,
        )}
      </svg>
      <span className="number muted">{show(newest)}</span>
    </div>
  );
}
