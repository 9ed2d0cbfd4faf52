import { type KeyboardEvent, type PointerEvent, memo, useMemo, useState } from "react";

import type { MapBlock, PartitionRow } from "./answers";
import { clock, count } from "./format";
import { type Span, blockAt, boxOf, dragged, firstChosen, held, indexAt, lostOf, marksOf, offsetAt, pathsOf, rateOf, shareOf, spanOf } from "./geometry";
import { KINDS, type Look, MARKS, fillOf } from "./kinds";
import { token } from "./style";
import { useWidth } from "./useWidth";

/** Pixels that a press may move and still is a click. */
const CLICK = 4;
const HEIGHT = 24;

interface Props {
  row: PartitionRow;
  look: Look;
  /** The times (epoch ms) that the row spans; undefined where its axis is the offsets. */
  times: Span | undefined;
  /** The range that is about to be replayed. */
  marked: Span | undefined;
  onBlock: (block: MapBlock) => void;
  onRange: (row: PartitionRow, span: Span) => void;
}

interface Drag {
  /** The row as it was when the drag began: a refresh must not move offsets below the pointer. */
  row: PartitionRow;
  start: number;
  end: number;
  /** Where it began on the screen: the row itself may move meanwhile. */
  x: number;
}

/** One partition. A click or Enter opens a block; dragging over offsets, or R on a block of them, asks for their replay. */
export const MapRow = memo(function MapRow({ row: newest, look, times, marked, onBlock, onRange }: Props) {
  const [element, width] = useWidth<SVGSVGElement>();
  const [at, setAt] = useState<number>();
  const [drag, setDrag] = useState<Drag>();
  const [over, setOver] = useState<number>();
  const row = drag?.row ?? newest;
  const span = times ?? spanOf(row);
  const index = at === undefined ? firstChosen(row.blocks) : indexAt(at, row.blocks);
  const chosen = row.blocks[index];
  const name = `${row.topic}-${row.partition}`;

  const share = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const release = (event: PointerEvent<SVGSVGElement>) => {
    if (drag === undefined) return;
    setDrag(undefined);
    const end = share(event);
    if (times !== undefined || Math.abs(event.clientX - drag.x) < CLICK) {
      const block = blockAt(end, row, span);
      if (block === undefined) return;
      setAt(block.from);
      onBlock(block);
      return;
    }
    const range = dragged(drag.start, end, row);
    if (range !== undefined) onRange(row, range);
  };
  const press = (event: KeyboardEvent<SVGSVGElement>) => {
    const last = row.blocks.length - 1;
    const moves: Record<string, number> = { ArrowLeft: index - 1, ArrowRight: index + 1, PageUp: index - 10, PageDown: index + 10, Home: 0, End: last };
    const to = moves[event.key];
    if (to !== undefined) setAt(row.blocks[Math.min(last, Math.max(0, to))]?.from);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") neighbour(event.currentTarget, event.key === "ArrowUp" ? -1 : 1)?.focus();
    else if (event.key === "Escape" && drag !== undefined) setDrag(undefined);
    else if (event.key === "Enter" && chosen !== undefined) onBlock(chosen);
    else if (event.key.toLowerCase() === "r" && !event.ctrlKey && !event.metaKey && chosen !== undefined && times === undefined) {
      const range = held(chosen, row);
      if (range !== undefined) onRange(row, range);
    } else return;
    event.preventDefault();
  };

  const { blocks, next_offset, log_start, log_end } = row;
  const { from, until } = span;
  const [drawn, lost] = useMemo(() => {
    if (width === 0) return [null, null];
    const shown = { from, until };
    const paths = (some: MapBlock[]) =>
      [...pathsOf(some, shown, width, HEIGHT, (block) => fillOf(block, look))].map(([fill, path]) => <path key={fill} d={path} fill={fill} />);
    // what is lost is no longer in the log, and not pale for it
    const above = paths(blocks.filter(({ kind }) => kind === "lost"));
    const below = [
      ...paths(blocks.filter(({ kind }) => kind !== "lost")),
      ...[...marksOf(blocks, shown, width, HEIGHT)].map(([mark, path]) => <path key={mark} data-mark={mark} d={path} fill={MARKS[mark].fill} />),
    ];
    return [below, above];
  }, [blocks, from, until, width, look]);
  const cursor = next_offset === null || times !== undefined ? undefined : width * shareOf(next_offset, span);
  const end = log_end === null || times !== undefined ? undefined : width * shareOf(log_end, span);

  return (
    <div className="row">
      <span>{name}</span>
      <svg
        ref={element}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="slider"
        tabIndex={0}
        data-blocks={blocks.length}
        aria-label={`${times === undefined ? "Offsets" : "Batches"} of ${name}`}
        aria-valuemin={span.from}
        aria-valuemax={span.until}
        aria-valuenow={chosen?.from ?? span.from}
        aria-valuetext={chosen === undefined ? "nothing is known" : said(chosen, times !== undefined)}
        onKeyDown={press}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag({ row: newest, start: share(event), end: share(event), x: event.clientX });
        }}
        onPointerMove={(event) => {
          setOver(share(event));
          if (drag !== undefined) setDrag({ ...drag, end: share(event) });
        }}
        onPointerUp={release}
        onPointerCancel={() => { setDrag(undefined); }}
        onPointerLeave={() => { setOver(undefined); }}
      >
        {drawn}
        {log_start !== null && times === undefined && log_start > span.from && (
          <rect width={width * shareOf(log_start, span)} height={HEIGHT} fill={token("bg")} opacity="0.6" />
        )}
        {lost}
        {end !== undefined && <path d={`M${end - 1},0 V${HEIGHT}`} stroke={token("fg")} strokeWidth="2" strokeDasharray="3 3" />}
        {cursor !== undefined && (
          <path d={`M${cursor - 5},0 H${cursor + 5} L${cursor + 1},6 V${HEIGHT} H${cursor - 1} V6 Z`} fill={token("fg")} />
        )}
        {chosen !== undefined && (
          <rect className="chosen" {...boxOf(chosen, span, width)} y={1} height={HEIGHT - 2} fill="none" stroke={token("fg")} strokeWidth="2" />
        )}
        {drag !== undefined && times === undefined && <Shade from={Math.min(drag.start, drag.end)} until={Math.max(drag.start, drag.end)} width={width} />}
        {drag === undefined && times === undefined && marked !== undefined && marked.from < marked.until && (
          <Shade from={shareOf(marked.from, span)} until={shareOf(marked.until, span)} width={width} />
        )}
      </svg>
      <span className="number muted">
        {lostOf(row) > 0 && <span className="state bad">{count(lostOf(row))} lost, </span>}
        {row.behind === null ? "end not known" : `${count(row.behind)} behind`}
      </span>
      <div className="axis muted">
        <span>{times === undefined ? count(span.from) : clock(span.from)}</span>
        <Pointed row={row} span={span} timed={times !== undefined} drag={drag} over={over} chosen={chosen} width={width} />
        <span>{times === undefined ? count(span.until) : clock(span.until)}</span>
      </div>
    </div>
  );
});

/** A part of a row, between two shares of its width. */
const Shade = ({ from, until, width }: Span & { width: number }) => (
  <rect
    x={width * from}
    width={Math.max(1, width * (until - from))}
    y={1}
    height={HEIGHT - 2}
    fill={token("fg")}
    fillOpacity="0.3"
    stroke={token("fg")}
    strokeWidth="2"
  />
);

interface PointedAt {
  row: PartitionRow;
  span: Span;
  timed: boolean;
  drag: Drag | undefined;
  over: number | undefined;
  chosen: MapBlock | undefined;
  width: number;
}

/** What the pointer is over or drags over; of a row with the focus, the block that keys have reached. */
function Pointed({ row, span, timed, drag, over, chosen, width }: PointedAt) {
  if (!timed && drag !== undefined && Math.abs(drag.end - drag.start) * width >= CLICK) {
    const range = dragged(drag.start, drag.end, row);
    return (
      <b>
        {range === undefined
          ? "nothing to replay here: it is not read yet, or the log no longer holds it"
          : `replay ${count(range.from)} to ${count(range.until)} (exclusive): ${count(range.until - range.from)} offsets`}
      </b>
    );
  }
  if (over === undefined) return <span className="focused">{chosen === undefined ? "" : said(chosen, timed)}</span>;
  const block = blockAt(over, row, span);
  const at = offsetAt(over, span);
  return <span>{block !== undefined ? said(block, timed) : timed ? clock(at) : `offset ${count(at)}`}</span>;
}

function neighbour(of: Element, step: number): SVGSVGElement | undefined {
  const rows = [...(of.closest(".tidegate")?.querySelectorAll<SVGSVGElement>("svg[role=slider]") ?? [])];
  return rows[rows.findIndex((each) => each === of) + step];
}

function said(block: MapBlock, timed: boolean): string {
  const seqs = block.seqs;
  const batches = seqs === null ? [] : seqs[0] === seqs[1] ? [`batch ${count(seqs[0])}`] : [`batches ${count(seqs[0])} to ${count(seqs[1])}`];
  return [
    ...batches,
    KINDS[block.kind].name,
    timed
      ? `${count(block.records)} offsets, ${clock(block.from)} to ${clock(block.until)}`
      : `offsets ${count(block.from)} to ${count(block.until)}`,
    ...(block.transform === null ? [] : [`by ${block.transform}`]),
    ...(block.seconds === 0 ? [] : [`${count(rateOf(block))} rows/s`]),
    ...block.marks.map((mark) => MARKS[mark].name),
  ].join(", ");
}
