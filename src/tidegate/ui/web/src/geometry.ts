// Where offsets are on the screen. Pure: shares of a row's width (0 to 1) in, offsets out, and the other way round.

import type { MapBlock, PartitionRow } from "./answers";

export type Mark = MapBlock["marks"][number];

/** The offsets that a row shows, `[from, until)`; at least one. */
export interface Span {
  from: number;
  until: number;
}

/** Rows per second of a block's batches; 0 where that is not known. */
export const rateOf = ({ rows, seconds }: MapBlock): number => (seconds > 0 ? rows / seconds : 0);

/** What a row spans: its blocks, and the log's end. */
export function spanOf(row: PartitionRow): Span {
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
export function blockAt(share: number, row: PartitionRow, span: Span = spanOf(row)): MapBlock | undefined {
  const at = span.from + share * (span.until - span.from);
  return row.blocks.find((block) => block.from <= at && at < block.until);
}

/** The index of the block that holds an offset, or else of the last one before it; the first of those after it; -1 of none. */
export function indexAt(offset: number, blocks: MapBlock[]): number {
  const after = blocks.findIndex((block) => block.from > offset);
  return after < 0 ? blocks.length - 1 : Math.max(0, after - 1);
}

/** Pixels of what is lost, however little it is. */
const LOUD = 6;

/** Where a block is in a row of `width` pixels: visible however small it is, and apart from its neighbour where there is room. */
export function boxOf(block: MapBlock, span: Span, width: number): { x: number; width: number } {
  const x = width * shareOf(block.from, span);
  const wide = width * shareOf(block.until, span) - x;
  return { x, width: Math.max(block.kind === "lost" ? LOUD : 1, wide > 3 ? wide - 1 : wide) };
}

/** The offsets of a row that can be replayed. */
export const replayable = (row: PartitionRow): Span | undefined =>
  held({ from: row.blocks[0]?.from ?? row.log_start ?? 0, until: row.next_offset ?? 0 }, row);

/** How many offsets the log has lost before the cursor read them; what a saved range was to read counts, what is accepted does not. */
export const lostOf = ({ blocks, log_start, next_offset }: PartitionRow): number =>
  blocks.some((block) => block.kind === "lost") ? Math.max(0, (log_start ?? 0) - (next_offset ?? 0)) : 0;

/** One SVG path for all blocks that look the same: thousands of elements of their own would be slow. */
export function pathsOf<L>(blocks: MapBlock[], span: Span, width: number, height: number, lookOf: (block: MapBlock) => L): Map<L, string> {
  const paths = new Map<L, string>();
  const round = (value: number) => Number(value.toFixed(2));
  for (const block of blocks) {
    const look = lookOf(block);
    const { x, width: wide } = boxOf(block, span, width);
    paths.set(look, `${paths.get(look) ?? ""}M${round(x)},2h${round(wide)}v${height - 4}h${-round(wide)}z`);
  }
  return paths;
}

const MARKS: Record<Mark, (x: number, wide: number, height: number) => string> = {
  // a line below the block
  replayed: (x, wide, height) => `M${x},${height - 4}h${wide}v2h${-wide}z`,
  // a line where it begins
  recreated: (x, _, height) => `M${x},0h2v${height}h-2z`,
  // a triangle at its top
  errors: (x, wide) => `M${x + wide / 2 - 4},0h8l-4,7z`,
  // a square in its middle
  cold: (x, wide, height) => `M${x + wide / 2 - 2},${height / 2 - 2}h4v4h-4z`,
};

/** One SVG path for each kind of mark that blocks carry. */
export function marksOf(blocks: MapBlock[], span: Span, width: number, height: number): Map<Mark, string> {
  const paths = new Map<Mark, string>();
  for (const block of blocks) {
    for (const mark of block.marks) {
      const { x, width: wide } = boxOf(block, span, width);
      paths.set(mark, `${paths.get(mark) ?? ""}${MARKS[mark](Number(x.toFixed(2)), Number(wide.toFixed(2)), height)}`);
    }
  }
  return paths;
}

/** The block that keys begin at: the newest one of a batch, or else the last. */
export function firstChosen(blocks: MapBlock[]): number {
  const newest = blocks.findLastIndex((block) => block.seqs !== null);
  return newest < 0 ? blocks.length - 1 : newest;
}

/** The part of some offsets that the log holds, and that the cursor has passed; undefined where there is none. */
export function held(span: Span, row: PartitionRow): Span | undefined {
  const from = Math.max(span.from, row.log_start ?? 0);
  const until = Math.min(span.until, row.next_offset ?? 0);
  return from < until ? { from, until } : undefined;
}

/** The offsets between two shares of the width that can be replayed, whichever comes first; undefined where there are none. */
export function dragged(one: number, other: number, row: PartitionRow): Span | undefined {
  const span = spanOf(row);
  return held({ from: offsetAt(Math.min(one, other), span), until: offsetAt(Math.max(one, other), span) }, row);
}

/** The version in the name of a transform (`module:function@version`), as the parameter of a replay takes it. */
export const versionOf = (transform: string): string => transform.slice(transform.lastIndexOf("@") + 1);

/** The version that loaded the newest of these rows' batches; undefined where none has. */
export function newestOf(rows: PartitionRow[]): string | undefined {
  const loaded = rows.flatMap((row) => row.blocks).filter((block) => block.transform !== null && block.seqs !== null);
  loaded.sort((one, other) => (other.seqs?.[1] ?? 0) - (one.seqs?.[1] ?? 0));
  return loaded[0]?.transform ?? undefined;
}
