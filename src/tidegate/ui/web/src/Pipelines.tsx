import { Fragment, type ReactNode, useState } from "react";

import type { PipelineRow, PipelinesAnswer } from "./answers";
import { address, part, runPage, view } from "./api";
import { ago, count, duration } from "./format";
import { Asking, Faults, Page, withCode } from "./Page";
import { Glance, STATES, type State, stateOf } from "./Glance";
import { Sparkline } from "./Sparkline";
import { EVERY_S, useAnswer, useNow } from "./useAnswer";

const COLUMNS = ["Pipeline", "State", "Lag", "Retention left", "Details"] as const;
/** Characters of a sentence; the whole of it is among the details. */
const LONGEST = 320;

/** All pipelines that the user may see, those that need attention first. */
export function Pipelines() {
  const asked = useAnswer((signal) => view<PipelinesAnswer>("pipelines", signal), "", EVERY_S, ({ pipelines }) => pipelines.some((each) => each.lag_soon));
  const pipelines = asked.answer?.pipelines;
  const [only, setOnly] = useState<State | null>(null);
  const now = useNow();
  return (
    <Page title="Tidegate">
      <Asking asked={asked} />
      <Faults faults={asked.answer?.airflow ?? []} />
      {pipelines?.length === 0 && <p>{withCode(asked.answer?.empty ?? "")}</p>}
      {pipelines !== undefined && pipelines.length > 0 && (
        <>
          <Counts of={pipelines} only={only} show={setOnly} />
          <div className="wide" tabIndex={0} role="region" aria-label="Pipelines">
            {/* a narrow page shows rows as cards: styles that make them so would take the roles away, so they are named */}
            <table className="pipelines" role="table">
              <thead role="rowgroup">
                <tr role="row">
                  {COLUMNS.map((each, n) => (
                    <th key={each} role="columnheader" scope="col" className={n > 1 ? "number" : ""}>
                      {each}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody role="rowgroup">
                {pipelines
                  .filter((each) => only === null || stateOf(each) === only)
                  .map((each) => (
                    <OneRow key={each.pipeline} of={each} now={now} />
                  ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </Page>
  );
}

/** How many pipelines are in each state; a press shows these alone, another one all. */
function Counts({ of, only, show }: { of: PipelineRow[]; only: State | null; show: (state: State | null) => void }) {
  return (
    <div className="bar" role="group" aria-label="Show only">
      {(Object.keys(STATES) as State[]).map((state) => {
        const n = of.filter((each) => stateOf(each) === state).length;
        if (n === 0 && state !== only) return null;
        const [kind, said] = STATES[state];
        return (
          <button key={state} type="button" aria-pressed={state === only} onClick={() => { show(state === only ? null : state); }}>
            <span className={`state ${kind}`}>{count(n)}</span> {said}
          </button>
        );
      })}
    </div>
  );
}

/** What is so, and what to do, in one line; the rest on demand. */
function OneRow({ of, now }: { of: PipelineRow; now: number }) {
  const [open, setOpen] = useState(false);
  const { lag } = of;
  const left = lag?.retention_left_s ?? null;
  return (
    <Fragment>
      <tr role="row">
        <th role="rowheader" scope="row">
          <a href={address(`dags/${part(of.pipeline)}/plugin/ranges`)}>{of.pipeline}</a>
          <div className="muted">{of.table}</div>
        </th>
        <td role="cell" data-name={COLUMNS[1]} className="said">
          <Glance of={of} now={now} longest={LONGEST} />
        </td>
        <td role="cell" data-name={COLUMNS[2]} className="number">
          {lag !== null ? count(lag.records_behind) : of.lag_soon ? "…" : "–"}
          {lag !== null && lag.seconds_behind !== null && <div className="muted">{duration(lag.seconds_behind)}</div>}
          {of.lag_error !== null && of.lag_at_ms !== null && <div className="muted">{ago(of.lag_at_ms, now)}</div>}
        </td>
        <td role="cell" data-name={COLUMNS[3]} className="number">
          {left === null ? "–" : of.loses_in_s !== null ? <span className="state bad">{duration(left)}</span> : duration(left)}
        </td>
        <td role="cell" className="number">
          <button type="button" aria-expanded={open} aria-label={`${open ? "Less" : "More"} of ${of.pipeline}`} onClick={() => { setOpen(!open); }}>
            {open ? "Less" : "More"}
          </button>
        </td>
      </tr>
      {open && (
        <tr role="row">
          <td role="cell" colSpan={COLUMNS.length} className="said">
            <Details of={of} now={now} />
          </td>
        </tr>
      )}
    </Fragment>
  );
}

function Details({ of, now }: { of: PipelineRow; now: number }) {
  const { last, lag } = of;
  const took = last === null ? null : `${duration(last.run_ms / 1000)}${of.interval_s === null ? "" : ` of ${duration(of.interval_s)}`}`;
  return (
    <>
      <Faults faults={of.faults} />
      {of.file_error !== null && <div className="note bad said-as-is">{of.file_error}</div>}
      {of.failure !== null && (
        <div className="note bad">
          {withCode(of.failure.why)}
          <div>
            Run <a href={runPage(of.pipeline, of.failure.run_id)}>{of.failure.run_id}</a>
          </div>
        </div>
      )}
      {of.refusal !== null && of.refusal !== of.lag_error && <div className="note bad">{withCode(of.refusal)}</div>}
      {of.waiting !== null && <div className="note warn">{withCode(of.waiting)}</div>}
      {lag !== null && lag.open_transaction !== null && <div className="note warn">{lag.open_transaction}</div>}
      {of.lag_error !== null && <div className="note warn">lag: {withCode(of.lag_error)}</div>}
      <dl className="facts">
        {of.pending !== null && <Fact name="Saved">{`batch ${count(of.pending.seq)}, ${count(of.pending.offsets)} offsets`}</Fact>}
        {last !== null && (
          <>
            <Fact name="Last batch">{`${count(of.seq)}, ${count(last.records)} records${last.bound === null ? "" : `, bound ${count(last.bound)}`}, ${ago(last.ended_at_ms, now)}`}</Fact>
            <Fact name="Run / interval">
              {took}
              {of.interval_s !== null && <Meter part={last.run_ms / 1000 / of.interval_s} />}
            </Fact>
          </>
        )}
        {of.records_per_s !== null && <Fact name="Records/s">{count(of.records_per_s)}</Fact>}
        {of.lag_points.length > 1 && (
          <Fact name="Records behind">
            <Sparkline name="Records behind of the last batches" values={of.lag_points} />
          </Fact>
        )}
      </dl>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt className="muted">{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** How much of the interval the run took; the numbers beside it say the same. */
function Meter({ part: taken }: { part: number }) {
  return (
    <div className="meter" aria-hidden="true">
      <div className={taken > 1 ? "over" : ""} style={{ width: `${Math.min(100, 100 * taken)}%` }} />
    </div>
  );
}
