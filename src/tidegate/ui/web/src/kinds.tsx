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

const OTHER_VERSIONS = ["teal-solid", "blue-solid", "purple-solid", "cyan-solid"];

/** The colour of a committed block, by the version of its transform. */
export const versionColor = (transform: string | null, transforms: string[]): string =>
  token(OTHER_VERSIONS[Math.max(0, transforms.indexOf(transform ?? "")) % OTHER_VERSIONS.length] ?? "teal-solid");

/** The patterns that blocks refer to, once a page. */
export function Patterns() {
  const stripes = (id: string, color: string, path: string) => (
    <pattern id={`tidegate-${id}`} width="6" height="6" patternUnits="userSpaceOnUse">
      <rect width="6" height="6" fill={token("bg-subtle")} />
      <path d={path} stroke={token(color)} strokeWidth="2" fill="none" />
    </pattern>
  );
  return (
    <svg aria-hidden="true" style={{ position: "absolute", width: 0, height: 0 }}>
      <defs>
        {stripes("loaded", "teal-solid", "M0,3 H6")}
        {stripes("planned", "orange-solid", "M0,6 L6,0")}
        {stripes("pending", "border-emphasized", "M3,0 V6")}
        {stripes("lost", "red-solid", "M0,0 L6,6 M0,6 L6,0")}
        {stripes("absent", "red-solid", "M0,0 L6,6")}
      </defs>
    </svg>
  );
}

/** What the looks mean, and which version has which colour. */
export function Legend({ transforms }: { transforms: string[] }) {
  const sample = (fill: string) => (
    <svg aria-hidden="true" viewBox="0 0 20 14">
      <rect width="20" height="14" fill={fill} />
    </svg>
  );
  const named = transforms.length > 1 ? transforms.map((each) => [`committed by ${each}`, versionColor(each, transforms)] as const) : [];
  const kinds = Object.entries(KINDS).filter(([kind]) => kind !== "committed" || named.length === 0);
  return (
    <div className="legend">
      {named.map(([name, fill]) => (
        <span key={name}>
          {sample(fill)}
          {name}
        </span>
      ))}
      {kinds.map(([kind, { name, fill }]) => (
        <span key={kind}>
          {sample(fill)}
          {name}
        </span>
      ))}
    </div>
  );
}
