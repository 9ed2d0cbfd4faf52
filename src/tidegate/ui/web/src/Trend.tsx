import { type Timing, part, view } from "./api";
import { count, duration, time } from "./format";
import { Asking } from "./Page";
import { token } from "./style";
import { useAnswer } from "./useAnswer";
import { useWidth } from "./useWidth";

const HEIGHT = 56;

/** Records, their bound and the time of the last batches. */
export function Trend({ dagId }: { dagId: string }) {
  const path = `dags/${part(dagId)}/trend`;
  const asked = useAnswer((signal) => view<{ batches: Timing[] }>(path, signal), path, 10);
  const batches = asked.answer?.batches ?? [];
  const first = batches[0];
  const last = batches[batches.length - 1];
  // who may not see it is told by the map above
  if (first === undefined || last === undefined || batches.length < 2) return null;
  return (
    <section aria-label="The last batches">
      <h2>The last {batches.length} batches</h2>
      <Asking asked={asked} />
      <div className="charts">
        <Chart name="Records" parts={batches.map((each) => [each.records])} marks={batches.map((each) => each.bound)} colors={["blue-solid"]} show={count} legend={["records", "bound (line)"]} />
        <Chart
          name="Seconds of the run"
          parts={batches.map((each) => [each.load_s, Math.max(0, each.run_s - each.load_s)])}
          colors={["blue-solid", "border-emphasized"]}
          show={duration}
          legend={["load (below)", "plan, commit and Airflow (above)"]}
        />
      </div>
      <p className="muted">
        {time(first.ended_at_ms)} to {time(last.ended_at_ms)}
      </p>
    </section>
  );
}

interface ChartOf {
  name: string;
  /** Of each batch, what its column is made of, from below. */
  parts: number[][];
  marks?: (number | null)[];
  colors: string[];
  show: (value: number) => string;
  legend: string[];
}

function Chart({ name, parts, marks = [], colors, show, legend }: ChartOf) {
  const [element, width] = useWidth<SVGSVGElement>();
  const sums = parts.map((each) => each.reduce((sum, value) => sum + value, 0));
  const most = Math.max(1e-9, ...sums, ...marks.map((mark) => mark ?? 0));
  const step = width / parts.length;
  const newest = sums[sums.length - 1] ?? 0;
  const y = (value: number) => HEIGHT - (HEIGHT * value) / most;
  const said = `${name}: the last ${show(newest)}, the most ${show(Math.max(...sums))}, the least ${show(Math.min(...sums))}`;
  return (
    <figure>
      <figcaption>
        <b>{name}</b> <span className="muted">the last {show(newest)}, the most {show(Math.max(...sums))}</span>
      </figcaption>
      <svg ref={element} viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={said}>
        {parts.map((each, n) => {
          let below = 0;
          return (
            <g key={n}>
              <title>{[...each.map((value, k) => `${legend[k] ?? ""} ${show(value)}`), marks[n] == null ? "" : `bound ${show(marks[n])}`].filter(Boolean).join(", ")}</title>
              {each.map((value, k) => {
                below += value;
                return <rect key={k} x={n * step} width={Math.max(0.5, step - 1)} y={y(below)} height={(HEIGHT * value) / most} fill={token(colors[k] ?? "")} />;
              })}
            </g>
          );
        })}
        {marks.map((mark, n) => (mark === null ? null : <rect key={n} x={n * step} width={step} y={Math.max(0, y(mark) - 1)} height="2" fill={token("orange-solid")} />))}
      </svg>
      <ul className="legend">
        {legend.map((each, k) => (
          <li key={each}>
            <svg aria-hidden="true" viewBox="0 0 20 14">
              {k < colors.length ? <rect width="20" height="14" fill={token(colors[k] ?? "")} /> : <rect y="6" width="20" height="2" fill={token("orange-solid")} />}
            </svg>
            {each}
          </li>
        ))}
      </ul>
    </figure>
  );
}
