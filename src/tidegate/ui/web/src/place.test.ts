import { expect, test } from "vitest";

import { placeOf, searchOf } from "./place";

test("an address names a place, and a place its address", () => {
  const search = "?batch=12&before=200&axis=time&colour=rate";
  expect(placeOf(search)).toEqual({ batch: 12, before: 200, axis: "time", colour: "rate" });
  expect(searchOf("", placeOf(search))).toBe(search);
});

test("what an address does not say is as usual, and takes no room in it", () => {
  expect(placeOf("")).toEqual({ axis: "offset", colour: "version" });
  expect(searchOf("?batch=3&axis=time", { axis: "offset", colour: "version" })).toBe("");
});

test("what an address says wrongly is left out, and what it says beside stays", () => {
  expect(placeOf("?batch=-1&before=1e9&axis=depth&colour=<script>")).toEqual({ axis: "offset", colour: "version" });
  expect(searchOf("?tab=x&batch=9", { axis: "time", colour: "state" })).toBe("?tab=x&axis=time&colour=state");
});
