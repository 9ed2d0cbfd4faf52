import type { ReactNode } from "react";

import type { MapBlock } from "./answers";
import { count } from "./format";
import { type Mark, rateOf } from "./geometry";
import type { Colour } from "./place";
import { token } from "./style";

/** How each kind of block looks: a colour, and a pattern where colour alone would have to be told apart. */
export const KINDS: Record<MapBlock["kind"], { name: string; fill: string }> = {
  committed: { name: "committed", fill: token("teal-solid") },
  loaded: { name: "loaded, not committed", fill: "url(#tidegate-loaded)" },
  planned: { name: "saved, not loaded", fill: "url(#tidegate-planned)" },
  pending: { name: "not read yet", fill: "url(#tidegate-pending)" },
  lost: { name: "lost: deleted before it was read", fill: token("red-solid") },
  accepted: { name: "a loss that was accepted", fill: "url(#tidegate-accepted)" },
};

/** A colour and marks for each version of a transform in turn. */
const VERSIONS = [
  { color: "teal-solid", marks: "" },
  { color: "blue-solid", marks: "M3,0 V2 M9,6 V8" },
  { color: "purple-solid", marks: "M0,12 L12,0" },
  { color: "cyan-solid", marks: "M0,3 H4 M6,9 H10" },
];
const UNKNOWN = "url(#tidegate-versions)";

/** What fills a committed block, by the version of its transform: null is none that is known, or more than one. */
function versionFill(transform: string | null, transforms: string[]): string {
  if (transforms.length < 2) return KINDS.committed.fill;
  const index = transform === null ? -1 : transforms.indexOf(transform);
  return index < 0 ? UNKNOWN : `url(#tidegate-version-${index % VERSIONS.length})`;
}

/** Shares of the greatest rate, each with what fills the blocks up to it. */
const RATES = [0.2, 0.4, 0.6, 0.8, 1].map((share) => ({
  share,
  fill: `color-mix(in oklab, ${token("blue-solid")} ${Math.round(15 + 85 * share)}%, ${token("bg")})`,
}));

/** The greatest rows per second of some blocks. */
export const mostRows = (blocks: MapBlock[]): number => Math.max(0, ...blocks.map(rateOf));

/** What fills a block. */
export function fillOf(block: MapBlock, { colour, transforms, most }: Look): string {
  if (block.kind !== "committed" || colour === "state") return KINDS[block.kind].fill;
  if (colour === "version") return versionFill(block.transform, transforms);
  if (block.seconds === 0 || most <= 0) return UNKNOWN;
  const share = rateOf(block) / most;
  return (RATES.find((each) => share <= each.share) ?? RATES[RATES.length - 1])?.fill ?? UNKNOWN;
}

/** What the colours of a map say. */
export interface Look {
  colour: Colour;
  transforms: string[];
  /** The greatest rows per second that are shown. */
  most: number;
}

/** How marks are drawn, and what they mean. */
export const MARKS: Record<Mark, { name: string; fill: string; path: string }> = {
  errors: { name: "with broken records", fill: token("red-solid"), path: "M6,0h8l-4,7z" },
  cold: { name: "Spark had just started", fill: token("fg"), path: "M8,5h4v4h-4z" },
  recreated: { name: "topic created again", fill: token("red-solid"), path: "M2,0h2v14h-2z" },
  replayed: { name: "loaded last by a replay", fill: token("fg"), path: "M0,10h20v2h-20z" },
};

/** The patterns that blocks refer to, once a page. */
export function Patterns() {
  const pattern = (id: string, size: number, back: string, marks: string, path: string, more = {}) => (
    <pattern key={id} id={`tidegate-${id}`} width={size} height={size} patternUnits="userSpaceOnUse">
      <rect width={size} height={size} fill={token(back)} />
      <path d={path} stroke={token(marks)} strokeWidth="2" fill="none" {...more} />
    </pattern>
  );
  return (
    <svg aria-hidden="true" style={{ position: "absolute", width: 0, height: 0 }}>
      <defs>
        {pattern("loaded", 6, "bg-subtle", "teal-solid", "M0,3 H6")}
        {pattern("planned", 6, "bg-subtle", "orange-solid", "M0,6 L6,0 M-1,1 L1,-1 M5,7 L7,5")}
        {pattern("pending", 6, "bg-subtle", "border-emphasized", "M3,0 V6")}
        {pattern("accepted", 6, "bg-subtle", "red-solid", "M0,0 L6,6 M0,6 L6,0")}
        {pattern("versions", 12, "teal-solid", "blue-solid", "M3,0 V12 M9,0 V12", { strokeWidth: 3 })}
        {VERSIONS.map(({ color, marks }, n) => pattern(`version-${n}`, 12, color, "bg", marks, { strokeWidth: 1.5, strokeOpacity: 0.6 }))}
      </defs>
    </svg>
  );
}

/** What the looks, marks and lines mean, of those that are shown. */
export function Legend({ look, blocks, axis }: { look: Look; blocks: MapBlock[]; axis: "offset" | "time" }) {
  const { colour, transforms, most } = look;
  const shown = new Set(blocks.map((block) => block.kind));
  const marked = new Set(blocks.flatMap((block) => block.marks));
  const unknown = (name: string) =>
    blocks.some((block) => block.kind === "committed" && fillOf(block, look) === UNKNOWN) ? [[name, UNKNOWN] as const] : [];
  const committed: (readonly [name: string, fill: string])[] =
    colour === "rate" && most > 0
      ? [
          ...RATES.map(({ share, fill }) => [`up to ${count(share * most)} rows/s`, fill] as const),
          ...unknown("rows/s not known"),
        ]
      : colour === "version" && transforms.length > 1
        ? [
            ...transforms.map((each) => [`committed by ${each}`, versionFill(each, transforms)] as const),
            ...unknown("committed by several, or not known by which"),
          ]
        : [[KINDS.committed.name, KINDS.committed.fill]];
  const looks = [
    ...committed,
    ...Object.entries(KINDS).flatMap(([kind, { name, fill }]) => (kind !== "committed" && shown.has(kind as MapBlock["kind"]) ? [[name, fill] as const] : [])),
  ];
  const lines: (readonly [name: string, path: string, dashes: string])[] = [
    ["cursor", "M5,0 H15 L11,6 V14 H9 V6 Z", ""],
    ["end of the log", "M10,0 V14", "3 3"],
  ];
  return (
    <ul className="legend" aria-label="Legend">
      {looks.map(([name, fill]) => (
        <Entry key={name} name={name}>
          <rect width="20" height="14" fill={fill} />
        </Entry>
      ))}
      {Object.entries(MARKS).map(([mark, { name, fill, path }]) =>
        marked.has(mark as Mark) ? (
          <Entry key={mark} name={name}>
            <rect width="20" height="14" fill={token("bg-muted")} />
            <path d={path} fill={fill} />
          </Entry>
        ) : null,
      )}
      {axis === "offset" && (
        <>
          {lines.map(([name, path, dashes]) => (
            <Entry key={name} name={name}>
              <path d={path} fill={token("fg")} stroke={dashes === "" ? "none" : token("fg")} strokeWidth="2" strokeDasharray={dashes} />
            </Entry>
          ))}
          <Entry name="pale: no longer in the log">
            <rect width="20" height="14" fill={token("teal-solid")} opacity="0.4" />
          </Entry>
        </>
      )}
    </ul>
  );
}

/** One entry of a legend, with what it looks like. */
export function Entry({ name, children }: { name: string; children: ReactNode }) {
  return (
    <li>
      <svg aria-hidden="true" viewBox="0 0 20 14">
        {children}
      </svg>
      {name}
    </li>
  );
}
