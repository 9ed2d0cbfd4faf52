// Numbers and times as people read them.

/** A whole number with separators. */
export const count = (value: number): string => Math.round(value).toLocaleString("en-US");

/** Seconds in the two largest units that matter: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 4 d 3 h. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(s, 60, "min", 1, "s");
  if (s < 86400) return two(s, 3600, "h", 60, "min");
  return two(s, 86400, "d", 3600, "h");
}

function two(s: number, large: number, of: string, small: number, rest: string): string {
  const left = Math.floor((s % large) / small);
  return `${Math.floor(s / large)} ${of}` + (left > 0 ? ` ${left} ${rest}` : "");
}

/** How long ago a time (epoch ms) was. */
export const ago = (atMs: number, nowMs: number): string => `${duration(Math.max(0, Math.floor((nowMs - atMs) / 1000)))} ago`;

/** A time (epoch ms) in the browser's zone, which it names: Airflow's UI may show another one. */
export const time = (atMs: number): string => new Date(atMs).toLocaleString(undefined, { timeZoneName: "short" });

/** A time (epoch ms) in the browser's zone, as short as an axis needs it. */
export const clock = (atMs: number): string =>
  new Date(atMs).toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
