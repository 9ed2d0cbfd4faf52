import { useState } from "react";

import type { HistoryAnswer, Point } from "./answers";
import { part, view } from "./api";
import { clock, count, duration, time } from "./format";
import { Entry } from "./kinds";
import { Asking, Faults } from "./Page";
import { token } from "./style";
import { EVERY_S, isSoon, useAnswer } from "./useAnswer";
import { useWidth } from "./useWidth";

const HEIGHT = 56;
const BUCKETS = 120;
const HOURS = { 1: "hour", 6: "6 hours", 24: "24 hours", 72: "3 days", 168: "7 days", 720: "30 days" } as const;

/** How far behind batches were, what they read, and what that took, over time; and what is to be expected. */
export function History({ dagId }: { dagId: string }) {
  const [hours, setHours] = useState(24);
  const path = `dags/${part(dagId)}/history?hours=${hours}&buckets=${BUCKETS}`;
  const asked = useAnswer((signal) => view<HistoryAnswer>(path, signal), path, EVERY_S, isSoon);
  const answer = asked.answer;
  const points = answer?.points ?? [];
  const rates = points.map((each) => (each.run_s === null || each.run_s === 0 ? null : each.records / each.batches / each.run_s));
  return (
    <section aria-label="History" className="history">
      <div className="bar">
        <h2>Batches over time</h2>
        <label className="short">
          The last
          <select value={hours} onChange={(event) => { setHours(Number(event.target.value)); }}>
            {Object.entries(HOURS).map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Asking asked={asked} />
      <Faults faults={answer?.faults ?? []} />
      {answer !== undefined && points.length === 0 && <p>No batch was planned in that time.</p>}
      {answer !== undefined && points.length > 0 && (
        <div className="charts">
          <Chart
            name="Records behind, when a batch was planned"
            of={answer}
            series={[{ name: "records behind", color: "purple-solid", values: points.map((each) => each.lag) }]}
            show={count}
          />
          <Chart
            name="Records per batch"
            of={answer}
            series={[{ name: "records per batch", color: "blue-solid", values: points.map((each) => each.records / each.batches) }]}
            line={{ name: "the most that was allowed", values: points.map((each) => each.bound) }}
            next={answer.forecast.next_bound}
            show={count}
          />
          <Chart
            name="Seconds of the run"
            of={answer}
            series={[
              { name: "load", color: "blue-solid", values: points.map((each) => each.load_s) },
              { name: "plan, commit and Airflow", color: "border-emphasized", values: points.map(beside) },
            ]}
            show={duration}
          />
          <Chart
            name="Records per second of the run"
            of={answer}
            series={[{ name: "records/s", color: "teal-solid", values: rates }]}
            show={count}
          />
        </div>
      )}
      {answer !== undefined && <Expected of={answer} />}
      {answer !== undefined && !answer.complete && <p className="muted">Older batches are being read…</p>}
    </section>
  );
}

/** The seconds of a run that were not its load's. */
const beside = ({ run_s, load_s }: Point): number | null => (run_s === null ? null : Math.max(0, run_s - (load_s ?? 0)));

function Expected({ of: { forecast, lag } }: { of: HistoryAnswer }) {
  const said = [
    ...(forecast.next_bound === null ? [] : [`The next batch may have ${count(forecast.next_bound)} records, by ${forecast.bound_by ?? ""}.`]),
    ...(forecast.arrival_per_s === null || forecast.verdict !== null ? [] : [`${count(forecast.arrival_per_s)} records/s arrive.`]),
    ...(forecast.drain_s === null || !lag ? [] : [`The ${count(lag)} that wait are loaded in ${duration(forecast.drain_s)}.`]),
    ...(forecast.verdict === null ? [] : [`${forecast.verdict.charAt(0).toUpperCase()}${forecast.verdict.slice(1)}.`]),
  ];
  return said.length === 0 ? null : <p>{said.join(" ")}</p>;
}

interface Series {
  name: string;
  color: string;
  values: (number | null)[];
}

interface ChartOf {
  name: string;
  of: HistoryAnswer;
  /** What columns are made of, from below. */
  series: Series[];
  line?: { name: string; values: (number | null)[] };
  /** The line's next value, drawn at the end. */
  next?: number | null;
  show: (value: number) => string;
}

/** Columns over time. Several batches of one column are the greatest of them, as the server says, or their average. */
function Chart({ name, of, series, line, next = null, show }: ChartOf) {
  const [element, width] = useWidth<SVGSVGElement>();
  const points = of.points;
  const sums = points.map((_, n) => series.reduce((sum, { values }) => sum + (values[n] ?? 0), 0));
  const known = sums.filter((_, n) => series.some(({ values }) => values[n] !== null && values[n] !== undefined));
  const most = Math.max(1e-9, ...sums, ...(line?.values ?? []).map((value) => value ?? 0), next ?? 0);
  const step = width / BUCKETS;
  const x = (atMs: number) => Math.min(width - step, (width * (atMs - of.from_ms)) / (of.until_ms - of.from_ms));
  const y = (value: number) => HEIGHT - (HEIGHT * value) / most;
  const newest = known[known.length - 1];
  const said = newest === undefined ? "not known" : `the last ${show(newest)}, the most ${show(Math.max(...known))}`;
  return (
    <figure>
      <figcaption>
        <b>{name}</b> <span className="muted">{said}</span>
      </figcaption>
      <svg ref={element} viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${name}: ${said}`}>
        {points.map((point, n) => {
          let below = 0;
          const bound = line?.values[n] ?? null;
          return (
            <g key={point.seq}>
              <title>
                {[
                  time(point.at_ms),
                  point.batches === 1 ? `batch ${count(point.seq)}` : `${count(point.batches)} batches up to ${count(point.seq)}`,
                  ...series.map(({ name: what, values }) => `${what} ${values[n] == null ? "not known" : show(values[n])}`),
                  ...(bound === null ? [] : [`${line?.name ?? ""} ${show(bound)}`]),
                ].join(", ")}
              </title>
              {series.map(({ name: what, color, values }) => {
                const value = values[n] ?? 0;
                below += value;
                return <rect key={what} x={x(point.at_ms)} width={Math.max(1, step - 1)} y={y(below)} height={(HEIGHT * value) / most} fill={token(color)} />;
              })}
              {bound !== null && <rect x={x(point.at_ms)} width={Math.max(2, step)} y={Math.max(0, y(bound) - 1)} height="2" fill={token("orange-solid")} />}
            </g>
          );
        })}
        {next !== null && (
          <path d={`M${width - 4 * step},${Math.max(1, y(next))}H${width}`} stroke={token("orange-solid")} strokeWidth="2" strokeDasharray="3 2" />
        )}
      </svg>
      <div className="ends muted">
        <span>{clock(of.from_ms)}</span>
        <span>{clock(of.until_ms)}</span>
      </div>
      <ul className="legend">
        {/* a chart of one thing has its name above it */}
        {series.length + (line === undefined ? 0 : 1) > 1 &&
          series.map((each) => (
            <Entry key={each.name} name={each.name}>
              <rect width="20" height="14" fill={token(each.color)} />
            </Entry>
          ))}
        {line !== undefined && (
          <Entry name={line.name}>
            <rect y="6" width="20" height="2" fill={token("orange-solid")} />
          </Entry>
        )}
        {next !== null && (
          <Entry name="of the next batch">
            <path d="M0,7H20" stroke={token("orange-solid")} strokeWidth="2" strokeDasharray="3 2" />
          </Entry>
        )}
      </ul>
    </figure>
  );
}
