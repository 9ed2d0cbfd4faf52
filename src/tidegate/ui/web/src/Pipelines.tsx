import { type Lag, type Pipeline, address, part, view } from "./api";
import { ago, count, duration } from "./format";
import { Asking, Faults, Page } from "./Page";
import { useAnswer, useNow } from "./useAnswer";

const TROUBLE = {
  unreadable: ["bad", "state unreadable"],
  stopped: ["bad", "stopped"],
  late: ["warn", "longer than its interval"],
  paused: ["", "paused"],
} as const;

/** All pipelines that the user may see, those that need attention first. */
export function Pipelines() {
  const asked = useAnswer(() => view<{ pipelines: Pipeline[] }>("pipelines"), "", 10);
  const pipelines = asked.answer?.pipelines;
  return (
    <Page title="Tidegate">
      <Asking asked={asked} />
      {pipelines?.length === 0 && <p>No pipeline yet, or none that you may see. `tidegate init` writes a first one into a DAG folder.</p>}
      {pipelines !== undefined && pipelines.length > 0 && (
        <div className="wide" tabIndex={0} role="region" aria-label="Pipelines">
          <table>
            <thead>
              <tr>
                <th scope="col">Pipeline</th>
                <th scope="col">State</th>
                <th scope="col" className="number">
                  Lag
                </th>
                <th scope="col" className="number">
                  Retention left
                </th>
                <th scope="col" className="number">
                  Last batch
                </th>
                <th scope="col" className="number">
                  Run / interval
                </th>
                <th scope="col" className="number">
                  Records/s
                </th>
              </tr>
            </thead>
            <tbody>
              {pipelines.map((each) => (
                <PipelineRow key={each.pipeline} of={each} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Page>
  );
}

function PipelineRow({ of }: { of: Pipeline }) {
  const now = useNow();
  const lag = useAnswer(() => view<Lag>(`dags/${part(of.pipeline)}/lag`), of.pipeline, 10);
  const total = lag.answer?.lag?.total;
  const away = lag.error ?? lag.answer?.error;
  const last = of.last;
  return (
    <tr>
      <th scope="row">
        <a href={address(`dags/${part(of.pipeline)}/plugin/ranges`)}>{of.pipeline}</a>
        <div className="muted">{of.table}</div>
      </th>
      <td>
        <State of={of} />
        <Faults faults={of.faults} />
        {of.failure !== null && (
          <div className="note bad">
            {of.failure.why} <a href={address(`dags/${part(of.pipeline)}/runs/${part(of.failure.run_id)}`)}>{of.failure.run_id}</a>
          </div>
        )}
        {of.pending !== null && (
          <div className="muted">
            batch {count(of.pending.seq)} is saved: {count(of.pending.offsets)} offsets
          </div>
        )}
        {away && <div className="muted">{`lag: ${away.message}${away.fix === "" ? "" : `. ${away.fix}`}`}</div>}
      </td>
      <td className="number">
        {total === undefined ? "–" : count(total.records_behind)}
        {total !== undefined && total.seconds_behind !== null && <div className="muted">{duration(total.seconds_behind)}</div>}
        {total !== undefined && away && lag.answer && <div className="muted">{ago(lag.answer.at_ms, now)}</div>}
      </td>
      <td className="number">{total === undefined || total.retention_left_s === null ? "–" : duration(total.retention_left_s)}</td>
      <td className="number">
        {of.seq === 0 ? "–" : count(of.seq)}
        {last !== null && (
          <div className="muted">
            {count(last.records)} records{last.bound === null ? "" : `, bound ${count(last.bound)}`}
            <br />
            {ago(last.ended_at_ms, now)}
          </div>
        )}
      </td>
      <td className="number">
        {last === null ? "–" : duration(last.run_s)}
        {of.interval_s !== null && <div className="muted">of {duration(of.interval_s)}</div>}
      </td>
      <td className="number">{of.records_per_s === null ? "–" : count(of.records_per_s)}</td>
    </tr>
  );
}

function State({ of }: { of: Pipeline }) {
  const now = useNow();
  const [kind, said] = of.trouble === null ? ["", of.seq === 0 ? "no batch yet" : "ok"] : TROUBLE[of.trouble];
  return (
    <>
      <span className={`state ${kind}`}>{said}</span>
      {of.run !== null && <div className="muted">{`run ${of.run.state} since ${ago(of.run.since_ms, now).replace(" ago", "")}`}</div>}
    </>
  );
}
