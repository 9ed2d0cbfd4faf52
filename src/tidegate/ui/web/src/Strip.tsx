import type { KeyboardEvent } from "react";

import type { RunMark } from "./answers";
import { rangePage } from "./api";
import { count, time } from "./format";
import { Entry } from "./kinds";
import { token } from "./style";

/** How each kind of run looks: its shape tells it apart without its colour. */
const KINDS: Record<RunMark["kind"], { name: string; fill: string; path: string }> = {
  loaded: { name: "loaded", fill: token("teal-solid"), path: "M2,0h16v14h-16z" },
  nothing: { name: "nothing to read", fill: token("border-emphasized"), path: "M2,6h16v2h-16z" },
  failed: { name: "failed", fill: token("red-solid"), path: "M4,0L10,5L16,0L18,2L12,7L18,12L16,14L10,9L4,14L2,12L8,7L2,2z" },
  replay: { name: "replay", fill: token("purple-solid"), path: "M16,0v14L3,7z" },
  running: { name: "running", fill: token("blue-solid"), path: "M4,0v14L17,7z" },
  queued: { name: "queued", fill: token("border-emphasized"), path: "M2,0h16v14h-16zM4,2v10h12v-10z" },
};

/** Runs that follow each other and found nothing are one mark, of the newest of them. */
function marks(runs: RunMark[]): { run: RunMark; times: number }[] {
  const found: { run: RunMark; times: number }[] = [];
  for (const run of runs) {
    const before = found.at(-1);
    if (run.kind === "nothing" && before?.run.kind === "nothing") found[found.length - 1] = { run, times: before.times + 1 };
    else found.push({ run, times: 1 });
  }
  return found;
}

/** The last runs, the oldest first, each a link to what it read. The arrow keys go from one to the next. */
export function Strip({ runs }: { runs: RunMark[] }) {
  if (runs.length === 0) return null;
  const shown = marks(runs);
  const kinds = new Set(runs.map((run) => run.kind));
  const move = (event: KeyboardEvent<HTMLElement>) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -runs.length, End: runs.length };
    const step = steps[event.key];
    if (step === undefined) return;
    const links = [...event.currentTarget.querySelectorAll("a")];
    const at = links.findIndex((each) => each === document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
    event.preventDefault();
  };
  return (
    <nav aria-label="The last runs" onKeyDown={move}>
      <h2>The last {count(runs.length)} runs</h2>
      <ul className="strip">
        {shown.map(({ run, times }, n) => (
          <li key={`${run.dag_id} ${run.run_id}`}>
            <a href={rangePage(run.dag_id, run.run_id)} aria-label={said(run, times)} title={said(run, times)} tabIndex={n === shown.length - 1 ? 0 : -1}>
              <svg aria-hidden="true" viewBox="0 0 20 14">
                <path d={KINDS[run.kind].path} fill={KINDS[run.kind].fill} fillRule="evenodd" />
              </svg>
              {times > 1 && <span className="muted">{times} ×</span>}
            </a>
          </li>
        ))}
      </ul>
      <ul className="legend" aria-label="Kinds of runs">
        {Object.entries(KINDS).map(([kind, { name, fill, path }]) =>
          kinds.has(kind as RunMark["kind"]) ? (
            <Entry key={kind} name={name}>
              <path d={path} fill={fill} fillRule="evenodd" />
            </Entry>
          ) : null,
        )}
      </ul>
    </nav>
  );
}

const said = ({ kind, seq, records, at_ms, run_id }: RunMark, times: number): string =>
  [
    `${times > 1 ? `${count(times)} × ` : ""}${KINDS[kind].name}`,
    ...(seq === null ? [] : [`batch ${count(seq)}`]),
    ...(records === null ? [] : [`${count(records)} records`]),
    time(at_ms),
    run_id,
  ].join(", ");
