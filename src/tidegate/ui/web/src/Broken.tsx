import { useState } from "react";

import type { BrokenAnswer } from "./answers";
import { part, view } from "./api";
import { Command } from "./Glance";
import { Asking, Cut, ReadAt, Refused } from "./Page";
import { LONGEST, SELDOM_S } from "./Quarantine";
import { isSoon, useAnswer } from "./useAnswer";

/** The first broken records of a batch, once somebody asks for them: the table is read for it. */
export function Broken({ dagId, seq }: { dagId: string; seq: number }) {
  const [open, setOpen] = useState(false);
  if (open) return <First dagId={dagId} seq={seq} />;
  return (
    <p>
      <button type="button" onClick={() => { setOpen(true); }}>
        Show broken records
      </button>
    </p>
  );
}

function First({ dagId, seq }: { dagId: string; seq: number }) {
  const path = `dags/${part(dagId)}/batches/${seq}/broken`;
  const asked = useAnswer((signal) => view<BrokenAnswer>(path, signal), path, SELDOM_S, isSoon);
  const found = asked.answer?.broken ?? null;
  return (
    <div role="status">
      <h2>Broken records</h2>
      <Asking asked={asked} />
      <Refused error={asked.answer?.error} />
      {found === null && asked.answer?.soon === true && <p className="muted">Reading the table…</p>}
      {asked.answer !== undefined && found !== null && <ReadAt atMs={asked.answer.at_ms} />}
      {found?.records.length === 0 && <p>The table holds none of them any more: a later load has replaced them.</p>}
      {found !== null && found.records.length > 0 && (
        <>
          <p>
            In <Cut text={found.partitions.join(", ")} longest={LONGEST} />
            {found.more ? "; the first ones:" : ":"}
          </p>
          <ul>
            {found.records.map(({ place, reason }, n) => (
              <li key={n}>
                <b>{place}</b>: <Cut text={reason} longest={LONGEST} plain />
              </li>
            ))}
          </ul>
          {found.commands.map((each) => (
            <Command key={each} line={each} later={false} />
          ))}
        </>
      )}
    </div>
  );
}
