import { useState } from "react";

import type { PipelineRow, PipelinesAnswer } from "./answers";
import { address, part, runPage, view } from "./api";
import { ago, count, duration } from "./format";
import { Asking, Faults, Page, withCode } from "./Page";
import { Sparkline } from "./Sparkline";
import { EVERY_S, useAnswer, useNow } from "./useAnswer";

const TROUBLE = {
  unreadable: ["bad", "state unreadable"],
  file: ["bad", "file unreadable"],
  stopped: ["bad", "stopped"],
  losing: ["bad", "unread records expire soon"],
  late: ["warn", "longer than its interval"],
  paused: ["", "paused"],
} as const;

const COLUMNS = ["Pipeline", "State", "Lag", "Retention left", "Last batch", "Run / interval", "Records/s"] as const;

/** All pipelines that the user may see, those that need attention first. */
export function Pipelines() {
  const asked = useAnswer((signal) => view<PipelinesAnswer>("pipelines", signal), "", EVERY_S, ({ pipelines }) => pipelines.some((each) => each.lag_soon));
  const pipelines = asked.answer?.pipelines;
  const now = useNow();
  return (
    <Page title="Tidegate">
      <Asking asked={asked} />
      <Faults faults={asked.answer?.airflow ?? []} />
      {pipelines?.length === 0 && <p>{withCode("No pipeline yet, or none that you may see. `tidegate init` writes a first one into a DAG folder.")}</p>}
      {pipelines !== undefined && pipelines.length > 0 && (
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
              {pipelines.map((each) => (
                <OneRow key={each.pipeline} of={each} now={now} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Page>
  );
}

function OneRow({ of, now }: { of: PipelineRow; now: number }) {
  const { lag, last } = of;
  const left = lag?.retention_left_s ?? null;
  return (
    <tr role="row">
      <th role="rowheader" scope="row">
        <a href={address(`dags/${part(of.pipeline)}/plugin/ranges`)}>{of.pipeline}</a>
        <div className="muted">{of.table}</div>
      </th>
      <td role="cell" data-name={COLUMNS[1]} className="said">
        <State of={of} now={now} />
        <Faults faults={of.faults} />
        {of.file_error !== null && <div className="note bad said-as-is">{of.file_error}</div>}
        {of.failure !== null && (
          <div className="note bad">
            {withCode(of.failure.why)}
            <div>
              Run <a href={runPage(of.pipeline, of.failure.run_id)}>{of.failure.run_id}</a>
            </div>
            <Command line={of.failure.command} />
          </div>
        )}
        {of.waiting !== null && <div className="note warn">{withCode(of.waiting)}</div>}
        {lag !== null && lag.open_transaction !== null && <div className="note warn">{lag.open_transaction}</div>}
        {of.pending !== null && (
          <div className="muted">
            batch {count(of.pending.seq)} is saved: {count(of.pending.offsets)} offsets
          </div>
        )}
        {of.lag_error !== null && <div className="note warn">lag: {withCode(of.lag_error)}</div>}
      </td>
      <td role="cell" data-name={COLUMNS[2]} className="number">
        {lag !== null ? count(lag.records_behind) : of.lag_soon ? "…" : "–"}
        {lag !== null && lag.seconds_behind !== null && <div className="muted">{duration(lag.seconds_behind)}</div>}
        {of.lag_error !== null && of.lag_at_ms !== null && <div className="muted">{ago(of.lag_at_ms, now)}</div>}
        <Sparkline name="Records behind of the last batches" values={of.lag_points} />
      </td>
      <td role="cell" data-name={COLUMNS[3]} className="number">
        {left === null ? "–" : of.trouble === "losing" ? <span className="state bad">{duration(left)}</span> : duration(left)}
      </td>
      <td role="cell" data-name={COLUMNS[4]} className="number">
        {of.seq === 0 ? "–" : count(of.seq)}
        {last !== null && (
          <>
            <div className="muted">{count(last.records)} records</div>
            {last.bound !== null && <div className="muted">bound {count(last.bound)}</div>}
            <div className="muted">{ago(last.ended_at_ms, now)}</div>
          </>
        )}
      </td>
      <td role="cell" data-name={COLUMNS[5]} className="number">
        {last === null ? "–" : duration(last.run_ms / 1000)}
        {of.interval_s !== null && <div className="muted">of {duration(of.interval_s)}</div>}
        {last !== null && of.interval_s !== null && <Meter part={last.run_ms / 1000 / of.interval_s} />}
      </td>
      <td role="cell" data-name={COLUMNS[6]} className="number">
        {of.records_per_s === null ? "–" : count(of.records_per_s)}
      </td>
    </tr>
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

function State({ of, now }: { of: PipelineRow; now: number }) {
  const [kind, said] = of.trouble === null ? ["", of.seq === 0 ? "no batch yet" : "ok"] : TROUBLE[of.trouble];
  return (
    <>
      <span className={`state ${kind}`}>{said}</span>
      {of.run !== null && (
        <div className="muted">
          <a href={runPage(of.pipeline, of.run.run_id)}>{of.run.state}</a> for {duration(Math.max(0, now - of.run.since_ms) / 1000)}
        </div>
      )}
    </>
  );
}

/** A command that goes on, to be copied. */
function Command({ line }: { line: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <div className="command">
      <code>{line}</code>
      {/* browsers lend the clipboard to pages of https and of this machine alone */}
      {globalThis.isSecureContext && (
        <button
          type="button"
          aria-label={`Copy ${line}`}
          onClick={() => {
            void navigator.clipboard.writeText(line).then(() => { setCopied(true); });
          }}
        >
          {copied ? "Copied" : "Copy"}
        </button>
      )}
    </div>
  );
}
