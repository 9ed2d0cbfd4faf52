import { expect, it } from "vitest";

import { ago, count, duration, time } from "./format";

it("says durations in two units", () => {
  const said = [0, 0.44, 12.4, 59.6, 185, 7800, 356_400, 3600].map(duration);
  expect(said).toEqual(["0 s", "0.4 s", "12 s", "1 min", "3 min 5 s", "2 h 10 min", "4 d 3 h", "1 h"]);
  expect([500, 2900].map((now) => ago(1000, now))).toEqual(["0 s ago", "1 s ago"]);
  expect(count(1234567.6)).toBe("1,234,568");
});

it("names the zone of a time, beside Airflow's UI, which may show another one", () => {
  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(0).find((each) => each.type === "timeZoneName")?.value;
  expect(time(0).endsWith(` ${zone ?? "?"}`)).toBe(true);
  expect(time(0)).toMatch(/\d:\d\d/);
});
