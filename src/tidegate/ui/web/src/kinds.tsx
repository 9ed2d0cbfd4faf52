import type { Kind } from "./api";
import { token } from "./style";

/** How each kind of block looks: a colour, and a pattern where colour alone would have to be told apart. */
export const KINDS: Record<Kind, { name: string; fill: string }> = {
  committed: { name: "committed", fill: token("teal-solid") },
  loaded: { name: "loaded, not committed", fill: "url(#tidegate-loaded)" },
  planned: { name: "saved, not loaded", fill: "url(#tidegate-planned)" },
  pending: { name: "not read yet", fill: "url(#tidegate-pending)" },
  lost: { name: "deleted before it was read", fill: "url(#tidegate-lost)" },
  absent: { name: "accepted to be missing", fill: "url(#tidegate-absent)" },
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
export function committedFill(transform: string | null, transforms: string[]): string {
  if (transforms.length < 2) return KINDS.committed.fill;
  const index = transform === null ? -1 : transforms.indexOf(transform);
  return index < 0 ? UNKNOWN : `url(#tidegate-version-${index % VERSIONS.length})`;
}

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
        {pattern("lost", 6, "bg-subtle", "red-solid", "M0,0 L6,6 M0,6 L6,0")}
        {pattern("absent", 6, "bg-subtle", "red-solid", "M0,0 L6,6 M-1,5 L1,7 M5,-1 L7,1")}
        {pattern("versions", 12, "teal-solid", "blue-solid", "M3,0 V12 M9,0 V12", { strokeWidth: 3 })}
        {VERSIONS.map(({ color, marks }, n) => pattern(`version-${n}`, 12, color, "bg", marks, { strokeWidth: 1.5, strokeOpacity: 0.6 }))}
      </defs>
    </svg>
  );
}

/** What the looks and lines mean, and which version looks how. */
export function Legend({ transforms }: { transforms: string[] }) {
  const versions = transforms.length > 1;
  const looks: (readonly [name: string, fill: string])[] = [
    ...(versions ? transforms.map((each) => [`committed by ${each}`, committedFill(each, transforms)] as const) : []),
    ...(versions ? [["committed by several, or not known by which", UNKNOWN] as const] : []),
    ...Object.entries(KINDS).flatMap(([kind, { name, fill }]) => (kind === "committed" && versions ? [] : [[name, fill] as const])),
  ];
  const lines: (readonly [name: string, path: string, dashes: string])[] = [
    ["cursor", "M5,0 H15 L11,6 V14 H9 V6 Z", ""],
    ["end of the log", "M10,0 V14", "3 3"],
  ];
  return (
    <ul className="legend" aria-label="Legend">
      {looks.map(([name, fill]) => (
        <li key={name}>
          <svg aria-hidden="true" viewBox="0 0 20 14">
            <rect width="20" height="14" fill={fill} />
          </svg>
          {name}
        </li>
      ))}
      {lines.map(([name, path, dashes]) => (
        <li key={name}>
          <svg aria-hidden="true" viewBox="0 0 20 14">
            <path d={path} fill={token("fg")} stroke={dashes === "" ? "none" : token("fg")} strokeWidth="2" strokeDasharray={dashes} />
          </svg>
          {name}
        </li>
      ))}
      <li>
        <svg aria-hidden="true" viewBox="0 0 20 14">
          <rect width="20" height="14" fill={token("teal-solid")} opacity="0.4" />
        </svg>
        pale: no longer in the log
      </li>
    </ul>
  );
}
