import { describe, expect, it } from "vitest";

import type { Row } from "./api";
import { blockAt, dragged, newestOf, offsetAt, shareOf, spanOf, versionOf } from "./geometry";

const block = (from: number, until: number) => ({
  from,
  until,
  kind: "committed" as const,
  seqs: null,
  batches: 1,
  transform: null,
});
const row: Row = {
  topic: "t",
  partition: 0,
  next_offset: 300,
  log_start: 120,
  log_end: 400,
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
