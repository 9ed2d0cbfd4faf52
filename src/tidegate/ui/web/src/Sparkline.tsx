import { count } from "./format";
import { token } from "./style";

const WIDTH = 80;
const HEIGHT = 18;

/** A line through some values, from left to right. */
export function Sparkline({ name, values }: { name: string; values: number[] }) {
  if (values.length < 2) return null;
  const most = Math.max(1, ...values);
  const points = values.map((value, n) => `${(n * WIDTH) / (values.length - 1)},${HEIGHT - 1 - ((HEIGHT - 2) * value) / most}`);
  return (
    <svg
      className="sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={`${name}: from ${count(values[0] ?? 0)} to ${count(values[values.length - 1] ?? 0)}, the most ${count(most)}`}
    >
      <polyline points={points.join(" ")} fill="none" stroke={token("purple-solid")} strokeWidth="1.5" />
    </svg>
  );
}
