// Where offsets are on the screen. Pure: shares of a row's width (0 to 1) in, offsets out, and the other way round.

import type { Block, Row } from "./api";

/** The offsets that a row shows, `[from, until)`; at least one. */
export interface Span {
  from: number;
  until: number;
}

/** What a row spans: its blocks, and the log's end. */
export function spanOf(row: Row): Span {
  const first = row.blocks[0]?.from ?? row.next_offset ?? row.log_start ?? 0;
  const last = row.blocks[row.blocks.length - 1]?.until ?? first;
  return { from: first, until: Math.max(last, row.log_end ?? 0, first + 1) };
}

/** The share of the width at which an offset is. */
export const shareOf = (offset: number, span: Span): number =>
  Math.min(1, Math.max(0, (offset - span.from) / (span.until - span.from)));

/** The offset at a share of the width. */
export const offsetAt = (share: number, span: Span): number =>
  Math.round(span.from + Math.min(1, Math.max(0, share)) * (span.until - span.from));

/** The block at a share of the width. */
export function blockAt(share: number, row: Row): Block | undefined {
  const span = spanOf(row);
  const at = span.from + share * (span.until - span.from);
  return row.blocks.find((block) => block.from <= at && at < block.until);
}

/** The offsets between two shares of the width that were read already, whichever comes first; undefined where there are none. */
export function dragged(one: number, other: number, row: Row): Span | undefined {
  const span = spanOf(row);
  const from = Math.max(offsetAt(Math.min(one, other), span), row.log_start ?? 0);
  const until = Math.min(offsetAt(Math.max(one, other), span), row.next_offset ?? 0);
  return from < until ? { from, until } : undefined;
}

/** The version in the name of a transform (`module:function@version`), as the parameter of a replay takes it. */
export const versionOf = (transform: string): string => transform.slice(transform.lastIndexOf("@") + 1);

/** The version that loaded the newest of these rows' batches; undefined where none has. */
export function newestOf(rows: Row[]): string | undefined {
  const loaded = rows.flatMap((row) => row.blocks).filter((block) => block.transform !== null && block.seqs !== null);
  loaded.sort((one, other) => (other.seqs?.[1] ?? 0) - (one.seqs?.[1] ?? 0));
  return loaded[0]?.transform ?? undefined;
}
