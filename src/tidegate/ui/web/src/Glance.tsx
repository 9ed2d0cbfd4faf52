import { useState } from "react";

import type { PipelineRow } from "./answers";
import { runPage } from "./api";
import { ago, duration } from "./format";
import { Cut } from "./Page";

export const STATES = {
  losing: ["bad", "losing records"],
  unreadable: ["bad", "state unreadable"],
  file: ["bad", "no valid file"],
  stopped: ["bad", "stopped"],
  waiting: ["warn", "waiting"],
  late: ["warn", "late"],
  unread: ["warn", "lag unknown"],
  ok: ["", "ok"],
  paused: ["", "paused"],
} as const;
export type State = keyof typeof STATES;

export const stateOf = (row: PipelineRow): State => row.trouble ?? (row.lag_error === null ? "ok" : "unread");

/** Whether something is to be mended before the command helps, which the sentence says. */
const isLater = (of: PipelineRow): boolean => (of.failure ?? of.refusal ?? of.file_error) !== null && !/`([^`]* )?(tidegate|airflow) /.test(of.says);

/** The state of a pipeline, what is so in one sentence of at most `longest` characters, and the command that goes on. */
export function Glance({ of, now, longest = Infinity }: { of: PipelineRow; now: number; longest?: number }) {
  return (
    <>
      <Chip of={of} now={now} /> {of.says !== "" && <Cut text={of.says} longest={longest} />}
      {of.command !== null && <Command key={of.command} line={of.command} later={isLater(of)} />}
    </>
  );
}

function Chip({ of, now }: { of: PipelineRow; now: number }) {
  const [kind, said] = STATES[stateOf(of)];
  const shown = of.loses_in_s ? `loses records in ${duration(of.loses_in_s)}` : stateOf(of) === "ok" && of.seq === 0 ? "no batch yet" : said;
  return (
    <>
      <span className={`state ${kind}`}>{shown}</span>
      {/* whoever has mended it since knows that the sentence is older */}
      {of.failure !== null && <span className="muted"> (the run of {ago(of.failure.since_ms, now)} failed)</span>}
      {of.run !== null && (
        <span className="muted">
          {" "}
          <a href={runPage(of.pipeline, of.run.run_id)}>{of.run.state}</a> for {duration(Math.max(0, now - of.run.since_ms) / 1000)}
        </span>
      )}
    </>
  );
}

/** A command that goes on, to be copied. */
export function Command({ line, later }: { line: string; later: boolean }) {
  const [copied, setCopied] = useState(false);
  return (
    <div className="command">
      {later && <span className="muted">then</span>}
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
      {/tidegate (plan|check)\b/.test(line) && <span className="muted">says more, and changes nothing</span>}
    </div>
  );
}
