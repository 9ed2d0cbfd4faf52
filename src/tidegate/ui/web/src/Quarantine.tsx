import type { QuarantineAnswer } from "./answers";
import { part, view } from "./api";
import { count } from "./format";
import { Command } from "./Glance";
import { Asking, Cut, ReadAt, Refused } from "./Page";
import { Panel } from "./Panel";
import { isSoon, useAnswer } from "./useAnswer";

/** The whole quarantine is read for an answer: an open panel does not ask every few seconds. */
export const SELDOM_S = 600;
/** Characters of a reason. */
export const LONGEST = 200;

/** Which records a pipeline has rejected, and why. */
export function Quarantine({ dagId, onClose }: { dagId: string; onClose: () => void }) {
  const path = `dags/${part(dagId)}/quarantine`;
  const asked = useAnswer((signal) => view<QuarantineAnswer>(path, signal), path, SELDOM_S, isSoon);
  const found = asked.answer?.quarantine ?? null;
  return (
    <Panel name="Quarantine" onClose={onClose}>
      <h2>Quarantine</h2>
      <Asking asked={asked} />
      <Refused error={asked.answer?.error} />
      {found === null && asked.answer?.soon === true && <p className="muted">Reading the quarantine…</p>}
      {asked.answer !== undefined && found !== null && (
        <>
          <ReadAt atMs={asked.answer.at_ms} />
          <p>
            <b>{count(found.records)}</b> records are in <code>{found.table}</code>.
            {found.gone > 0 && ` ${count(found.gone)} of them are not in the log any more: no replay reads them.`}
            {found.left > 0 && ` ${count(found.left)} more do not count: their loads were killed, have yet to commit, or were replaced since.`}
          </p>
          <ul>
            {found.reasons.map((each) => (
              <li key={`${each.rejected_by} ${each.reason}`}>
                <b><Cut text={each.reason} longest={LONGEST} plain /></b> ({each.rejected_by}): {count(each.records)}, {each.first}
                {each.records > 1 && ` to ${each.last}`}. <span className="muted">The first one:</span> <code>{each.sample}</code>
              </li>
            ))}
          </ul>
          {found.more > 0 && <p>{count(found.more)} more reasons are not shown.</p>}
          {found.replay !== null && (
            <>
              <p>Once they can be loaded:</p>
              <Command line={found.replay} later={false} />
            </>
          )}
        </>
      )}
      <button type="button" onClick={onClose}>
        Close
      </button>
    </Panel>
  );
}
