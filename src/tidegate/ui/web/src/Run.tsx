import type { ReplayRun, RunAnswer } from "./answers";
import { address, part, runPage, view } from "./api";
import { BatchDetails } from "./BatchDetails";
import { count, time } from "./format";
import { Asking, Page, Refused, withCode } from "./Page";
import { EVERY_S, isSoon, useAnswer } from "./useAnswer";

/** What one DAG run read: its batch, its replay, or why there is neither. */
export function Run({ dagId = "", runId = "" }: { dagId?: string; runId?: string }) {
  const asked = useAnswer((signal) => view<RunAnswer>(`dags/${part(dagId)}/runs/${part(runId)}`, signal), `${dagId}/${runId}`, EVERY_S, isSoon);
  return (
    <Page title="Range">
      <Asking asked={asked} />
      {asked.answer !== undefined && <RunOf dagId={dagId} of={asked.answer} />}
    </Page>
  );
}

const BAD = ["failed"];

function RunOf({ dagId, of }: { dagId: string; of: RunAnswer }) {
  if (of.batch !== null) {
    return (
      <>
        {of.reason !== null && <div className="note bad said-as-is">{withCode(of.reason)}</div>}
        <BatchDetails dagId={dagId} of={of} />
      </>
    );
  }
  if (of.replay !== null) {
    return (
      <>
        <Refused error={of.error} />
        <ReplayDetails dagId={dagId} of={of.replay} />
      </>
    );
  }
  return <div className={`note said-as-is ${BAD.includes(of.kind) ? "bad" : ""}`}>{withCode(of.reason ?? "")}</div>;
}

function ReplayDetails({ dagId, of }: { dagId: string; of: ReplayRun }) {
  const landed = of.chunks.filter((each) => each.committed_at_ms !== null);
  return (
    <>
      <p>
        {of.dry_run ? "Dry run of a replay" : "Replay"} of <a href={address(`dags/${part(of.pipeline)}/plugin/ranges`)}>{of.pipeline}</a>:{" "}
        <b>{of.state}</b>
        {of.offsets === null ? "" : `, ${count(of.offsets)} offsets`}
        {of.transform === null ? "" : ` by ${of.transform}`}
        {of.table === null ? "" : ` into ${of.table}`}.
        {of.chunks.length > 0 && ` ${count(landed.length)} of ${count(of.chunks.length)} chunks are in the table.`}{" "}
        <a href={runPage(dagId, of.run_id)}>Its tasks</a>
      </p>
      <Listed title="Asked for" of={of.request} />
      {of.note !== null && <div className="note said-as-is">{of.note}</div>}
      {of.replaces.length > 0 && (
        <Table
          title={of.dry_run ? "What it would replace" : "What it replaces"}
          heads={["Loaded by", "Offsets", "Rows, about", "Transform"]}
          rows={of.replaces.map((each) => [each.load, count(each.offsets), count(each.rows), each.transform])}
        />
      )}
      {of.lost.length > 0 && (
        <>
          <h2>No longer in the log, left out</h2>
          <ul>
            {of.lost.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </>
      )}
      {of.chunks.length > 0 && (
        <Table
          title="Chunks"
          heads={["Chunk", "Offsets", "Rows", "Loaded"]}
          rows={of.chunks.map((each) => [
            count(each.chunk),
            count(each.offsets),
            each.rows === null ? "–" : count(each.rows),
            each.committed_at_ms === null ? "not yet" : time(each.committed_at_ms),
          ])}
        />
      )}
      <Listed title="Verified" of={of.verdict ?? {}} />
      {!of.dry_run && of.chunks.length === 0 && <p>Nothing is saved of it{of.state === "failed" ? ": see the log of its plan task" : ""}.</p>}
    </>
  );
}

/** Names and values that are there. */
function Listed({ title, of }: { title: string; of: Record<string, unknown> }) {
  const set = Object.entries(of).filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0));
  if (set.length === 0) return null;
  return (
    <>
      <h2>{title}</h2>
      <ul>
        {set.map(([name, value]) => (
          <li key={name}>
            {name}: {typeof value === "number" ? count(value) : typeof value === "string" ? value : JSON.stringify(value)}
          </li>
        ))}
      </ul>
    </>
  );
}

function Table({ title, heads, rows }: { title: string; heads: [string, string, string, string]; rows: string[][] }) {
  const numbers = (n: number) => (n === 1 || n === 2 ? "number" : "");
  return (
    <>
      <h2>{title}</h2>
      <div className="wide" tabIndex={0} role="region" aria-label={title}>
        <table>
          <thead>
            <tr>
              {heads.map((head, n) => (
                <th key={head} scope="col" className={numbers(n)}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, at) => (
              <tr key={at}>
                {row.map((cell, n) => (n === 0 ? <th key={n} scope="row">{cell}</th> : <td key={n} className={numbers(n)}>{cell}</td>))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
