import { type KeyboardEvent, type PointerEvent, memo, useState } from "react";

import type { Block, Row } from "./api";
import { count } from "./format";
import { type Span, blockAt, dragged, shareOf, spanOf } from "./geometry";
import { KINDS, versionColor } from "./kinds";
import { token } from "./style";

const CLICK = 0.004;

interface Props {
  row: Row;
  transforms: string[];
  onBlock: (block: Block) => void;
  onRange: (row: Row, span: Span) => void;
}

/** One partition. A click or Enter opens a block; dragging over a part, or R on a block, asks for its replay. */
export const MapRow = memo(function MapRow({ row, transforms, onBlock, onRange }: Props) {
  const [at, setAt] = useState(Math.max(0, row.blocks.length - 1));
  const [drag, setDrag] = useState<[number, number]>();
  const span = spanOf(row);
  const chosen = row.blocks[Math.min(at, row.blocks.length - 1)];
  const name = `${row.topic}-${row.partition}`;

  const share = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const release = (event: PointerEvent<SVGSVGElement>) => {
    if (drag === undefined) return;
    setDrag(undefined);
    const end = share(event);
    if (Math.abs(end - drag[0]) < CLICK) {
      const block = blockAt(end, row);
      if (block !== undefined) onBlock(block);
      return;
    }
    const range = dragged(drag[0], end, row);
    if (range !== undefined) onRange(row, range);
  };
  const press = (event: KeyboardEvent) => {
    const last = row.blocks.length - 1;
    const moves: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last };
    const to = moves[event.key];
    if (to !== undefined) setAt(Math.min(last, Math.max(0, to)));
    else if (event.key === "Enter" && chosen !== undefined) onBlock(chosen);
    else if (event.key.toLowerCase() === "r" && chosen !== undefined) onRange(row, { from: chosen.from, until: chosen.until });
    else return;
    event.preventDefault();
  };

  return (
    <div className="row">
      <span>{name}</span>
      <svg
        viewBox="0 0 1000 24"
        preserveAspectRatio="none"
        role="slider"
        tabIndex={0}
        aria-label={`Offsets of ${name}`}
        aria-valuemin={span.from}
        aria-valuemax={span.until}
        aria-valuenow={chosen?.from ?? span.from}
        aria-valuetext={chosen === undefined ? "nothing is known" : said(chosen)}
        onKeyDown={press}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag([share(event), share(event)]);
        }}
        onPointerMove={(event) => {
          if (drag !== undefined) setDrag([drag[0], share(event)]);
        }}
        onPointerUp={release}
        onPointerCancel={() => { setDrag(undefined); }}
      >
        {row.blocks.map((block) => {
          const x = 1000 * shareOf(block.from, span);
          const width = Math.max(1, 1000 * shareOf(block.until, span) - x - 0.5);
          const fill = block.kind === "committed" ? versionColor(block.transform, transforms) : KINDS[block.kind].fill;
          return (
            <rect key={block.from} x={x} width={width} y={block === chosen ? 0 : 2} height={block === chosen ? 24 : 20} fill={fill}>
              <title>{said(block)}</title>
            </rect>
          );
        })}
        {row.next_offset !== null && <rect x={1000 * shareOf(row.next_offset, span) - 1} width="2" height="24" fill={token("fg")} />}
        {row.log_start !== null && row.log_start > span.from && (
          <rect width={1000 * shareOf(row.log_start, span)} height="24" fill={token("bg")} opacity="0.6" />
        )}
        {drag !== undefined && (
          <rect
            x={1000 * Math.min(...drag)}
            width={1000 * Math.abs(drag[1] - drag[0])}
            height="24"
            fill={token("blue-solid")}
            opacity="0.4"
          />
        )}
      </svg>
      <span className="number muted">
        {row.log_end === null || row.next_offset === null ? "end not known" : `${count(Math.max(0, row.log_end - row.next_offset))} behind`}
      </span>
    </div>
  );
});

function said(block: Block): string {
  const seqs = block.seqs;
  const batches = seqs === null ? "" : seqs[0] === seqs[1] ? `batch ${seqs[0]}, ` : `batches ${seqs[0]} to ${seqs[1]}, `;
  const by = block.transform === null ? "" : `, by ${block.transform}`;
  return `${batches}${KINDS[block.kind].name}, offsets ${count(block.from)} to ${count(block.until)}${by}`;
}
