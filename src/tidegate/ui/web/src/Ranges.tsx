import { useCallback, useEffect, useMemo, useState } from "react";

import type { BatchAnswer, MapAnswer, MapBlock, PartitionRow } from "./answers";
import { part, view } from "./api";
import { BatchDetails } from "./BatchDetails";
import { ago, count } from "./format";
import { type Span, newestOf, replayable } from "./geometry";
import { Glance, STATES, stateOf } from "./Glance";
import { History } from "./History";
import { Legend, type Look, Patterns, mostRows } from "./kinds";
import { MapRow } from "./MapRow";
import { Asking, Faults, Page, Refused } from "./Page";
import { Panel } from "./Panel";
import { COLOURS, type Colour, type Place, placeOf, searchOf } from "./place";
import { Quarantine } from "./Quarantine";
import { type Chosen, Replay } from "./Replay";
import { Strip } from "./Strip";
import { EVERY_S, isSoon, useAnswer, useNow } from "./useAnswer";

const PARTITIONS = 25;
const COLUMNS = 200;
const COLOUR_NAMES: Record<Colour, string> = { version: "version of the transform", state: "state", rate: "rows per second" };

/** The range map of a pipeline. */
export function Ranges({ dagId = "" }: { dagId?: string }) {
  // another DAG is another page: nothing of the one before is kept
  return <RangesOf key={dagId} dagId={dagId} />;
}

function RangesOf({ dagId }: { dagId: string }) {
  const [place, setPlace] = useState(() => placeOf(location.search));
  /** The pages of batches that were turned over: of each, the batch that it ends before. */
  const [turned, setTurned] = useState<number[]>([]);
  const [skip, setSkip] = useState(0);
  const [replay, setReplay] = useState<Chosen>();
  /** What is in the form, which may be edited there. */
  const [marked, setMarked] = useState<Chosen>();
  const [quarantine, setQuarantine] = useState(false);
  const [kept, setKept] = useState<MapAnswer>();
  const { batch: seq, before, axis, colour } = place;
  const go = useCallback((to: Partial<Place>) => {
    setPlace((was) => ({ ...was, ...to }));
  }, []);
  useEffect(() => {
    // the state is the host's router's
    history.replaceState(history.state, "", `${location.pathname}${searchOf(location.search, place)}${location.hash}`);
  }, [place]);
  const query = new URLSearchParams({ columns: String(COLUMNS), limit: String(PARTITIONS), skip: String(skip), axis });
  if (before !== undefined) query.set("before", String(before));
  const path = `dags/${part(dagId)}/map?${query.toString()}`;
  const asked = useAnswer((signal) => view<MapAnswer>(path, signal), path, EVERY_S, isSoon);
  useEffect(() => {
    if (asked.answer !== undefined) setKept(asked.answer);
  }, [asked.answer]);
  // while another page is asked for, the one before stays: whoever turns pages keeps the place and the focus
  const map = asked.answer ?? kept;
  const now = useNow();
  const drawn = map !== undefined;
  useEffect(() => {
    if (drawn) performance.mark("tidegate:map");
  }, [drawn]);
  const rows = useMemo(() => map?.rows ?? [], [map]);
  const blocks = useMemo(() => rows.flatMap((row) => row.blocks), [rows]);
  const transforms = map?.transforms;
  const look = useMemo<Look>(() => ({ colour, transforms: transforms ?? [], most: mostRows(blocks) }), [colour, transforms, blocks]);
  // the axis that the answer has, not the one that is asked for
  const timed = map?.axis === "time";
  const [fromMs, untilMs] = map?.span_ms ?? [0, 0];
  const times = useMemo(() => (timed ? { from: fromMs, until: Math.max(fromMs + 1, untilMs) } : undefined), [timed, fromMs, untilMs]);
  const first = map?.first_seq ?? null;
  const whole = rows.find((row) => replayable(row) !== undefined);

  const open = useCallback((block: MapBlock) => {
    if (block.seqs !== null) go({ batch: block.seqs[1] });
  }, [go]);
  const choose = useCallback((row: PartitionRow, span: Span) => {
    const chosen = { topic: row.topic, partition: row.partition, ...span };
    setReplay(chosen);
    setMarked(chosen);
  }, []);
  const of = marked === undefined || "transform" in marked ? undefined : marked;

  return (
    <Page title="Ranges">
      <Patterns />
      {(map === undefined || asked.error !== undefined) && <Asking asked={asked} />}
      <Refused error={map?.error === map?.row.says ? null : map?.error} {...(map?.error_at_ms == null ? {} : { since: ago(map.error_at_ms, now) })} />
      <Faults faults={map?.airflow ?? []} />
      {map !== undefined && map.row.trouble !== null && (
        <div className={`note ${STATES[stateOf(map.row)][0]}`} role="status">
          <Glance of={map.row} now={now} />
        </div>
      )}
      <Faults faults={map?.faults.filter((each) => each !== map.row.says) ?? []} />
      <div className={replay === undefined && seq === undefined && !quarantine ? "" : "split"}>
        <div>
          {map !== undefined && (
            <div aria-busy={asked.answer === undefined}>
              <div className="bar">
                <span>{first === null ? "No batch yet" : `Batches ${count(first)} to ${count(map.last_seq ?? first)}`}</span>
                <button type="button" disabled={first === null || first <= 1} onClick={() => { if (first !== null) { setTurned([...turned, first]); go({ before: first }); } }}>
                  Older
                </button>
                <button type="button" disabled={before === undefined} onClick={() => { setTurned(turned.slice(0, -1)); go({ before: turned[turned.length - 2] }); }}>
                  Newer
                </button>
                <button type="button" disabled={before === undefined} onClick={() => { setTurned([]); go({ before: undefined }); }}>
                  Newest
                </button>
                <button
                  type="button"
                  disabled={whole === undefined}
                  onClick={() => {
                    const span = whole === undefined ? undefined : replayable(whole);
                    if (whole !== undefined && span !== undefined) choose(whole, span);
                  }}
                >
                  Replay a range
                </button>
                {map.quarantine !== null && (
                  <button type="button" aria-expanded={quarantine} onClick={() => { setQuarantine(!quarantine); }}>
                    Quarantine
                  </button>
                )}
                <label className="short">
                  Axis
                  <select value={axis} onChange={(event) => { go({ axis: event.target.value === "time" ? "time" : "offset" }); }}>
                    <option value="offset">offsets</option>
                    <option value="time">time</option>
                  </select>
                </label>
                <label className="short">
                  Colour
                  <select value={colour} onChange={(event) => { go({ colour: COLOURS.find((each) => each === event.target.value) ?? "version" }); }}>
                    {COLOURS.map((each) => (
                      <option key={each} value={each}>
                        {COLOUR_NAMES[each]}
                      </option>
                    ))}
                  </select>
                </label>
              </div>
              {map.partitions > PARTITIONS && (
                <div className="bar">
                  <span>
                    Partitions {count(skip + 1)} to {count(Math.min(map.partitions, skip + PARTITIONS))} of {count(map.partitions)}
                  </span>
                  <button type="button" disabled={skip === 0} onClick={() => { setSkip(Math.max(0, skip - PARTITIONS)); }}>
                    Further behind
                  </button>
                  <button type="button" disabled={skip + PARTITIONS >= map.partitions} onClick={() => { setSkip(skip + PARTITIONS); }}>
                    Less behind
                  </button>
                </div>
              )}
              {rows.length > 0 && <Legend look={look} blocks={blocks} axis={map.axis} />}
              <OlderVersions
                map={map}
                onChoose={(transform) => {
                  setReplay({ transform });
                  setMarked(undefined);
                }}
              />
              <div className="rows">
                {rows.map((row) => (
                  <MapRow
                    key={`${row.topic}-${row.partition}`}
                    row={row}
                    look={look}
                    times={times}
                    marked={of?.topic === row.topic && of.partition === row.partition ? of : undefined}
                    onBlock={open}
                    onRange={choose}
                  />
                ))}
              </div>
              {rows.length === 0 && <p>Nothing is read yet: the first run saves a first range.</p>}
              {rows.length > 0 && (
                <p className="muted">
                  {/* below the rows, which must not move below the pointer */}
                  {map.waiting_for.length > 0 && `Waiting for the ${map.waiting_for.join(" and the ")}… `}
                  {timed
                    ? "A block lasts from the plan of its batch to its load. Click on one to see its batch; by keyboard: arrow keys and Enter."
                    : "Drag over a part of a row to replay it; click on a block to see its batch. By keyboard: arrow keys, Enter, and R to replay."}
                </p>
              )}
              <Strip runs={map.runs} />
            </div>
          )}
        </div>
        <aside aria-label="Details">
          {replay !== undefined && (
            <Replay
              key={JSON.stringify(replay)}
              dagId={dagId}
              of={replay}
              rows={rows}
              onEdit={setMarked}
              onClose={() => { setReplay(undefined); setMarked(undefined); }}
            />
          )}
          {quarantine && <Quarantine dagId={dagId} onClose={() => { setQuarantine(false); }} />}
          {seq !== undefined && <BatchPanel key={seq} dagId={dagId} seq={seq} onClose={() => { go({ batch: undefined }); }} />}
        </aside>
        {drawn && <History dagId={dagId} />}
      </div>
    </Page>
  );
}

function OlderVersions({ map, onChoose }: { map: MapAnswer; onChoose: (transform: string) => void }) {
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
  const asked = useAnswer((signal) => view<BatchAnswer>(path, signal), path, EVERY_S, isSoon);
  return (
    <Panel name={`Batch ${seq}`} onClose={onClose}>
      <h2>Batch {count(seq)}</h2>
      <Asking asked={asked} />
      {asked.answer !== undefined && <BatchDetails dagId={dagId} of={asked.answer} />}
      <button type="button" onClick={onClose}>
        Close
      </button>
    </Panel>
  );
}
