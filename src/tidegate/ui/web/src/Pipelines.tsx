import { type Lag, type Pipeline, address, part, runPage, view } from "./api";
import { ago, count, duration } from "./format";
import { Asking, Faults, Page, saidOf } from "./Page";
import { useAnswer, useNow } from "./useAnswer";

const TROUBLE = {
  unreadable: ["bad", "state unreadable"],
  stopped: ["bad", "stopped"],
  late: ["warn", "longer than its interval"],
  paused: ["", "paused"],
} as const;

/** Retention that is this near is shown as trouble, seconds. */
const NEAR_S = 3600;

const COLUMNS = ["Pipeline", "State", "Lag", "Retention left", "Last batch", "Run / interval", "Records/s"] as const;

/** All pipelines that the user may see, those that need attention first. */
export function Pipelines() {
  const asked = useAnswer((signal) => view<{ pipelines: Pipeline[] }>("pipelines", signal), "", 10);
  const pipelines = asked.answer?.pipelines;
  const now = useNow();
  return (
    <Page title="Tidegate">
      <Asking asked={asked} />
      {pipelines?.length === 0 && <p>No pipeline yet, or none that you may see. `tidegate init` writes a first one into a DAG folder.</p>}
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
                <PipelineRow key={each.pipeline} of={each} now={now} told={asked.error?.message} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Page>
  );
}

/** One pipeline; `told` is what the page says already of why nothing is new. */
function PipelineRow({ of, now, told }: { of: Pipeline; now: number; told: string | undefined }) {
  const dagId = of.dag_id ?? of.pipeline;
  const lag = useAnswer((signal) => view<Lag>(`dags/${part(dagId)}/lag`, signal), dagId, 10);
  const known = lag.answer?.lag ?? undefined;
  const away = lag.error ?? lag.answer?.error;
  const left = known?.total.retention_left_s ?? null;
  const last = of.last;
  return (
    <tr role="row">
      <th role="rowheader" scope="row">
        <a href={address(`dags/${part(dagId)}/plugin/ranges`)}>{of.pipeline}</a>
        <div className="muted">{of.table}</div>
      </th>
      <td role="cell" data-name={COLUMNS[1]} className="said">
        <State of={of} dagId={dagId} now={now} />
        <Faults faults={of.faults} />
        {of.failure !== null && (
          <div className="note bad">
            {of.failure.why} <a href={runPage(dagId, of.failure.run_id)}>{of.failure.run_id}</a>
          </div>
        )}
        {of.pending !== null && (
          <div className="muted">
            batch {count(of.pending.seq)} is saved: {count(of.pending.offsets)} offsets
          </div>
        )}
        {away && away.message !== told && <div className="note warn">lag: {saidOf(away)}</div>}
        {known !== undefined && known.maintenance !== null && <div className="note warn">{known.maintenance}</div>}
      </td>
      <td role="cell" data-name={COLUMNS[2]} className="number">
        {known === undefined ? (lag.answer === undefined && lag.error === undefined ? "…" : "–") : count(known.total.records_behind)}
        {known !== undefined && known.total.seconds_behind !== null && <div className="muted">{duration(known.total.seconds_behind)}</div>}
        {known !== undefined && away && lag.answer && <div className="muted">{ago(lag.answer.at_ms, now)}</div>}
      </td>
      <td role="cell" data-name={COLUMNS[3]} className="number">
        {left === null ? "–" : left < NEAR_S ? <span className="state bad">{duration(left)}</span> : duration(left)}
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
        {last === null ? "–" : duration(last.run_s)}
        {of.interval_s !== null && <div className="muted">of {duration(of.interval_s)}</div>}
        {last !== null && of.interval_s !== null && <Meter part={last.run_s / of.interval_s} />}
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

function State({ of, dagId, now }: { of: Pipeline; dagId: string; now: number }) {
  const [kind, said] = of.trouble === null ? ["", of.seq === 0 ? "no batch yet" : "ok"] : TROUBLE[of.trouble];
  return (
    <>
      <span className={`state ${kind}`}>{said}</span>
      {of.run !== null && (
        <div className="muted">
          <a href={runPage(dagId, of.run.run_id)}>run {of.run.state}</a> for {duration(Math.max(0, now - of.run.since_ms) / 1000)}
        </div>
      )}
    </>
  );
}
