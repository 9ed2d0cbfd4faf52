import type { ReactNode } from "react";

import type { RequestFailed } from "./api";
import { ago } from "./format";
import { type Asked, useNow } from "./useAnswer";

/** What a page shares: its heading, and what is wrong with what it shows. */
export function Page({ title, children }: { title: string; children: ReactNode }) {
  return (
    <main className="tidegate" aria-label={title}>
      <h1>{title}</h1>
      {children}
    </main>
  );
}

/** A text whose parts between backticks are code. */
export const withCode = (text: string): ReactNode[] => text.split(/`([^`]+)`/).map((each, n) => (n % 2 === 1 ? <code key={n}>{each}</code> : each));

/** A text of at most `longest` characters, or its beginning, with the whole as its title; `plain` has no code in it. */
export function Cut({ text, longest, plain = false }: { text: string; longest: number; plain?: boolean }) {
  const isCut = text.length > longest;
  const shown = isCut ? `${text.slice(0, longest).replace(/\s\S*$/, "")}…` : text;
  return <bdi title={isCut ? text : undefined}>{plain ? shown : withCode(shown)}</bdi>;
}

/** Why something is not shown, or is not new. */
export function Refused({ error, since }: { error: string | RequestFailed | undefined | null; since?: string }) {
  if (!error) return null;
  return (
    <div className="note bad" role="status">
      {withCode(typeof error === "string" ? error : error.said)}
      {since === undefined ? "" : ` (shown as of ${since})`}
    </div>
  );
}

/** How old values are that were read for whoever asked: not every few seconds. */
export function ReadAt({ atMs }: { atMs: number }) {
  return <p className="muted">Read {ago(atMs, useNow())}.</p>;
}

/** The error of a question, with the age of what is shown instead of a new answer; or that it is being asked. */
export function Asking({ asked }: { asked: Asked<unknown> }) {
  const now = useNow();
  if (asked.error === undefined) return asked.answer === undefined ? <p className="muted">Loading…</p> : null;
  return asked.answer === undefined ? <Refused error={asked.error} /> : <Refused error={asked.error} since={ago(asked.atMs, now)} />;
}

/** Saved state that cannot be read. */
export function Faults({ faults }: { faults: string[] }) {
  return faults.map((fault) => (
    <div className="note bad" key={fault}>
      {withCode(fault)}
    </div>
  ));
}
