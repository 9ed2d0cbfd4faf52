import type { Batch, BatchAnswer } from "./answers";
import { address, part, rangePage, runPage, taskPage, tasksOf } from "./api";
import { Broken } from "./Broken";
import { count, duration, time } from "./format";
import { Refused } from "./Page";
import { phasesOf, phasesOfTiming, WAITING } from "./phases";
import { token } from "./style";
import { EVERY_S, useAnswer } from "./useAnswer";

/** One batch in full. */
export function BatchDetails({ dagId, of }: { dagId: string; of: BatchAnswer }) {
  const batch = of.batch;
  if (batch === null) return <p>Nothing is saved of this batch.</p>;
  const run = (id: string) => <a href={runPage(dagId, id)}>{id}</a>;
  return (
    <>
      <Refused error={of.error} />
      <p>
        Batch {count(batch.seq)} is <b>{batch.state}</b>
        {batch.rows === null ? "" : `, ${count(batch.rows)} rows`}
        {batch.transform === null ? "" : ` by ${batch.transform}`}. Planned {time(batch.planned_at_ms)} by run {run(batch.run_id)}
        {batch.who === null ? "" : ` (${batch.who})`}; <a href={taskPage(dagId, batch.run_id, "load")}>log of its load</a>.
      </p>
      {batch.explained.length > 0 && (
        <ul>
          {batch.explained.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      )}
      <Phases dagId={dagId} batch={batch} />
      <Load of={batch.load} />
      {((batch.load === null ? batch.loads.length > 0 : batch.load.errors) || batch.loads.some((load) => load.quarantined)) && <Broken dagId={dagId} seq={batch.seq} />}
      {batch.rate !== null && (
        <p>
          Backpressure: {batch.rate.policy} allowed {count(batch.rate.records)} records (
          {Object.entries(batch.rate.terms)
            .map(([name, value]) => `${name} ${Number(value.toPrecision(3))}`)
            .join(", ")}
          ).
        </p>
      )}
      <Limits limits={batch.limits} />
      <h2>Ranges</h2>
      <div className="wide" tabIndex={0} role="region" aria-label="Ranges">
        <table>
          <thead>
            <tr>
              <th scope="col">Partition</th>
              <th scope="col" className="number">
                From
              </th>
              <th scope="col" className="number">
                Until
              </th>
              <th scope="col">From is</th>
              <th scope="col">Until is</th>
            </tr>
          </thead>
          <tbody>
            {batch.partitions.map((each) => (
              <tr key={`${each.topic}-${each.partition}`}>
                <th scope="row">
                  {each.topic}-{each.partition}
                </th>
                <td className="number">{count(each.from_offset)}</td>
                <td className="number">{count(each.until_offset)}</td>
                <td>{each.from_reason ?? "–"}</td>
                <td>{each.until_reason ?? "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <h2>Loads</h2>
      {batch.loads.length === 0 ? (
        <p>No snapshot of the table has a receipt of it: it is not loaded, or the snapshot has expired.</p>
      ) : (
        <ul>
          {batch.loads.map((load) => (
            <li key={load.snapshot}>
              {time(load.committed_at_ms)}: {count(load.rows)} rows{load.kept > 0 ? `, ${count(load.kept)} older rows written again` : ""}
              {load.quarantined ? `, ${count(load.quarantined)} records in quarantine` : ""}, snapshot{" "}
              {load.snapshot}, by {load.transform}, run {run(load.run_id)}
              {load.columns.length > 0 && <p className="note">Columns of the table: {load.columns.join(", ")}.</p>}
            </li>
          ))}
        </ul>
      )}
      {batch.loads.some((load) => load.quarantined) && (
        <p>
          The rejected records, why, and the replay that loads them again: <i>Quarantine</i> on{" "}
          <a href={address(`dags/${part(dagId)}/plugin/ranges`)}>the page of the ranges</a>
        </p>
      )}
      {batch.replays.length > 0 && (
        <>
          <h2>Replays</h2>
          <ul>
            {batch.replays.map((each) => (
              <li key={`${each.dag_id} ${each.run_id} ${each.committed_at_ms}`}>
                {time(each.committed_at_ms)}: {each.partitions.map((r) => `${r.topic}-${r.partition} ${count(r.from_offset)} to ${count(r.until_offset)}`).join(", ")} by{" "}
                {each.transform}, run <a href={rangePage(each.dag_id, each.run_id)}>{each.run_id}</a>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** What bounded the batch when it was planned; limits that are not set are left out. */
function Limits({ limits }: { limits: Record<string, unknown> }) {
  const set = Object.entries(limits).filter(([, value]) => value !== null);
  if (set.length === 0) return null;
  return <p>Limits: {set.map(([name, value]) => `${name} ${typeof value === "number" ? count(value) : JSON.stringify(value)}`).join(", ")}.</p>;
}

/** What the load saw, and the seconds of its phases. */
function Load({ of }: { of: Batch["load"] }) {
  if (of === null) return null;
  const said = [
    ...(of.records === null ? [] : [`${count(of.records)} records read`]),
    ...(of.repeats === null ? [] : [`${count(of.repeats)} repeats left out`]),
    ...(of.errors === null ? [] : [`${count(of.errors)} broken records`]),
    ...(of.spark_age_s === null ? [] : [`Spark had been running for ${duration(of.spark_age_s)}`]),
    ...Object.entries(of.seconds).flatMap(([phase, seconds]) => (seconds < 0.05 ? [] : [`${phase} ${duration(seconds)}`])),
  ];
  return said.length === 0 ? null : <p className={of.errors ? "note warn" : ""}>Load: {said.join(", ")}.</p>;
}

const COLORS: Record<string, string> = { plan: "purple-solid", load: "blue-solid", commit: "teal-solid", [WAITING]: "border-emphasized" };

/** The seconds of the run, by Airflow's tasks; where it does not tell them, by what the cursor holds of the last batch. */
function Phases({ dagId, batch }: { dagId: string; batch: Batch }) {
  const asked = useAnswer((signal) => tasksOf(dagId, batch.run_id, signal), `${dagId}/${batch.run_id}`, EVERY_S);
  const tasks = phasesOf(asked.answer ?? [], asked.atMs);
  const known = asked.answer !== undefined || asked.error !== undefined;
  const phases = tasks.length > 0 ? tasks : known && batch.timing !== null ? phasesOfTiming(batch.timing) : [];
  if (phases.length === 0) return null;
  const looks = phases.map((phase) => ({ ...phase, color: token(COLORS[phase.name] ?? "cyan-solid") }));
  return (
    <div>
      <div className="phases" role="img" aria-label={phases.map(({ name, ms }) => `${name} ${duration(ms / 1000)}`).join(", ")}>
        {looks.map(({ name, ms, color }) => (
          <span key={name} style={{ flexGrow: Math.max(1, ms), background: color }} />
        ))}
      </div>
      <ul className="legend">
        {looks.map(({ name, ms, color }) => (
          <li key={name}>
            <svg aria-hidden="true" viewBox="0 0 20 14">
              <rect width="20" height="14" fill={color} />
            </svg>
            {name} {duration(ms / 1000)}
          </li>
        ))}
      </ul>
      {batch.timing !== null && (
        <p className="muted">
          {count(batch.timing.records)} records{batch.timing.bound === null ? "" : `, bound ${count(batch.timing.bound)}`}; started{" "}
          {duration(batch.timing.scheduling_delay_ms / 1000)} after it was due
        </p>
      )}
    </div>
  );
}
