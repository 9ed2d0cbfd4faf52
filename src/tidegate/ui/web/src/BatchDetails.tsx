import { type Batch, type BatchAnswer, address, part } from "./api";
import { count, duration, time } from "./format";
import { Refused } from "./Page";
import { token } from "./style";

/** One batch in full. */
export function BatchDetails({ dagId, of }: { dagId: string; of: BatchAnswer }) {
  const batch = of.batch;
  if (batch === null) return <p>Nothing is saved of this batch.</p>;
  const run = (id: string) => <a href={address(`dags/${part(dagId)}/runs/${part(id)}`)}>{id}</a>;
  return (
    <>
      <Refused error={of.error} />
      <p>
        Batch {count(batch.seq)} is <b>{batch.state}</b>
        {batch.rows === null ? "" : `, ${count(batch.rows)} rows`}
        {batch.transform === null ? "" : ` by ${batch.transform}`}. Planned {time(batch.planned_at_ms)} by run {run(batch.run_id)}
        {batch.who === null ? "" : ` (${batch.who})`}
        {batch.adopted_from === null ? "" : ", which adopted the range of another run"}.
      </p>
      {batch.timing !== null && <Phases timing={batch.timing} />}
      {batch.rate !== null && (
        <p>
          Backpressure: {batch.rate.policy} allowed {count(batch.rate.records)} records (
          {Object.entries(batch.rate.terms)
            .map(([name, value]) => `${name} ${Number(value.toPrecision(3))}`)
            .join(", ")}
          ).
        </p>
      )}
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
                <td className="number">{count(each.from)}</td>
                <td className="number">{count(each.until)}</td>
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
              {time(load.committed_at_ms)}: {count(load.rows)} rows{load.kept > 0 ? `, ${count(load.kept)} older rows written again` : ""}, snapshot{" "}
              {load.snapshot}, run {run(load.run_id)}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Phases({ timing }: { timing: NonNullable<Batch["timing"]> }) {
  const load = timing.load_ms;
  const rest = Math.max(0, timing.run_ms - load);
  const parts = [
    ["load", load, token("blue-solid")],
    ["plan, commit and Airflow", rest, token("border-emphasized")],
  ] as const;
  const said = parts.map(([name, ms]) => `${name} ${duration(ms / 1000)}`).join(", ");
  return (
    <div>
      <div className="phases" role="img" aria-label={said}>
        {parts.map(([name, ms, color]) => (
          <span key={name} style={{ flexGrow: ms, background: color }} />
        ))}
      </div>
      <p className="muted">
        {said}; started {duration(timing.scheduling_delay_ms / 1000)} after it was due
      </p>
    </div>
  );
}
