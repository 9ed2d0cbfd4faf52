import { describe, expect, it } from "vitest";

import type { MapBlock, PartitionRow } from "./answers";
import { blockAt, boxOf, dragged, firstChosen, held, indexAt, lostOf, marksOf, newestOf, offsetAt, pathsOf, replayable, shareOf, spanOf, versionOf } from "./geometry";

const block = (from: number, until: number): MapBlock => ({
  from,
  until,
  kind: "committed",
  seqs: null,
  batches: 1,
  transform: null,
  marks: [],
  records: until - from,
  rows: 0,
  seconds: 0,
});
const row: PartitionRow = {
  topic: "t",
  partition: 0,
  next_offset: 300,
  log_start: 120,
  log_end: 400,
  behind: 100,
  blocks: [block(100, 200), block(200, 300)],
};

describe("a row", () => {
  it("spans its blocks and the log's end", () => {
    expect(spanOf(row)).toEqual({ from: 100, until: 400 });
    expect(spanOf({ ...row, log_end: null })).toEqual({ from: 100, until: 300 });
    expect(spanOf({ ...row, blocks: [], next_offset: null, log_start: null, log_end: null })).toEqual({ from: 0, until: 1 });
  });

  it("finds offsets where it has drawn them", () => {
    const span = spanOf(row);
    for (const offset of [100, 101, 250, 399, 400]) expect(offsetAt(shareOf(offset, span), span)).toBe(offset);
    expect(offsetAt(7, span)).toBe(400);
    expect(shareOf(0, span)).toBe(0);
  });

  it("has a block where one is", () => {
    expect(blockAt(0.1, row)?.from).toBe(100);
    expect(blockAt(0.5, row)?.from).toBe(200);
    expect(blockAt(0.9, row)).toBeUndefined();
  });
});

describe("a block", () => {
  it("is found by an offset, and one beside it where none holds the offset", () => {
    const found = [0, 100, 199, 200, 250, 300, 900].map((offset) => indexAt(offset, row.blocks));
    expect(found).toEqual([0, 0, 0, 1, 1, 1, 1]);
    expect(indexAt(5, [])).toBe(-1);
  });

  it("is drawn with those that look the same", () => {
    const blocks = [block(100, 200), { ...block(200, 300), kind: "lost" as const }, block(300, 400)];
    const paths = pathsOf(blocks, spanOf(row), 300, 24, (each) => each.kind);
    expect([...paths]).toEqual([
      ["committed", "M0,2h99v20h-99zM200,2h99v20h-99z"],
      ["lost", "M100,2h99v20h-99z"],
    ]);
  });

  it("is at first the newest one of a batch", () => {
    const batch = { ...block(0, 100), seqs: [1, 1] as [number, number] };
    expect(firstChosen([batch, batch, block(200, 300)])).toBe(1);
    expect(firstChosen([block(0, 100), block(100, 200)])).toBe(1);
    expect(firstChosen([])).toBe(-1);
  });

  it("can be replayed as far as the log holds it and the cursor has passed it", () => {
    expect(held(block(100, 200), row)).toEqual({ from: 120, until: 200 });
    expect(held(block(250, 400), row)).toEqual({ from: 250, until: 300 });
    expect(held(block(300, 400), row)).toBeUndefined();
    expect(held(block(100, 120), row)).toBeUndefined();
  });

  it("is at least a pixel wide, and apart from its neighbour where there is room", () => {
    const span = spanOf(row);
    expect(boxOf(block(100, 200), span, 300)).toEqual({ x: 0, width: 99 });
    expect(boxOf(block(100, 101), span, 300)).toEqual({ x: 0, width: 1 });
    expect(boxOf(block(100, 101), span, 900).width).toBe(3);
  });

  it("shows what is lost wider, and counts it", () => {
    const lost: MapBlock = { ...block(300, 301), kind: "lost" };
    expect(boxOf(lost, spanOf(row), 300).width).toBe(6);
    expect(lostOf({ ...row, log_start: 301, blocks: [...row.blocks, lost] })).toBe(1);
    expect([row, { ...row, log_start: null }, { ...row, log_start: 301 }].map(lostOf)).toEqual([0, 0, 0]);
  });
});

describe("what can be replayed", () => {
  it("is in the log and before the cursor", () => {
    expect(replayable(row)).toEqual({ from: 120, until: 300 });
    expect(replayable({ ...row, log_start: null })).toEqual({ from: 100, until: 300 });
    expect(replayable({ ...row, blocks: [] })).toEqual({ from: 120, until: 300 });
    expect(replayable({ ...row, log_start: 300 })).toBeUndefined();
    expect(replayable({ ...row, next_offset: null })).toBeUndefined();
  });
});

describe("what is dragged over", () => {
  it("is the same in both directions", () => {
    expect(dragged(0.2, 0.5, row)).toEqual({ from: 160, until: 250 });
    expect(dragged(0.5, 0.2, row)).toEqual({ from: 160, until: 250 });
  });

  it("ends where the log or the cursor does", () => {
    expect(dragged(0, 1, row)).toEqual({ from: 120, until: 300 });
    expect(dragged(0.8, 1, row)).toBeUndefined();
  });
});

describe("a version", () => {
  it("is what follows the transform's name", () => {
    expect(["m:f@1.4", "m:f@3f9a0c12b7de", "old"].map(versionOf)).toEqual(["1.4", "3f9a0c12b7de", "old"]);
  });

  it("is the newest that loaded the last batch", () => {
    const of = (seq: number, transform: string | null) => ({ ...block(seq, seq + 1), seqs: [seq, seq] as [number, number], transform });
    expect(newestOf([{ ...row, blocks: [of(1, "m:f@1"), of(3, null)] }, { ...row, blocks: [of(2, "m:f@2")] }])).toBe("m:f@2");
    expect(newestOf([row])).toBeUndefined();
  });
});

describe("marks", () => {
  it("are one path each, where their blocks are", () => {
    const blocks: MapBlock[] = [{ ...block(0, 10), marks: ["errors", "cold"] }, { ...block(10, 20), marks: ["errors"] }];
    const paths = marksOf(blocks, { from: 0, until: 20 }, 200, 24);
    expect([...paths.keys()]).toEqual(["errors", "cold"]);
    expect(paths.get("errors")?.split("M").length).toBe(3);
    expect(marksOf([block(0, 10)], { from: 0, until: 10 }, 100, 24).size).toBe(0);
  });
});
