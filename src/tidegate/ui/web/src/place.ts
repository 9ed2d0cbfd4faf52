// What of a page is in its address, so that a link leads to it. Pure.

export const COLOURS = ["version", "state", "rate"] as const;
export type Colour = (typeof COLOURS)[number];

export interface Place {
  /** The batch that is open. */
  batch?: number | undefined;
  /** The batches that are shown end before this one. */
  before?: number | undefined;
  axis: "offset" | "time";
  /** What the colour of a committed block says. */
  colour: Colour;
}

/** A whole number from 0, as an address has it. */
function whole(text: string | null): number | undefined {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/** The place that an address names; what it does not say, or says wrongly, is as usual. */
export function placeOf(search: string): Place {
  const query = new URLSearchParams(search);
  const batch = whole(query.get("batch"));
  const before = whole(query.get("before"));
  return {
    ...(batch === undefined ? {} : { batch }),
    ...(before === undefined ? {} : { before }),
    axis: query.get("axis") === "time" ? "time" : "offset",
    colour: COLOURS.find((each) => each === query.get("colour")) ?? "version",
  };
}

/** The same address for another place; what else it says stays. */
export function searchOf(search: string, place: Place): string {
  const query = new URLSearchParams(search);
  const said: Record<string, string | undefined> = {
    batch: place.batch?.toString(),
    before: place.before?.toString(),
    axis: place.axis === "time" ? "time" : undefined,
    colour: place.colour === "version" ? undefined : place.colour,
  };
  for (const [name, value] of Object.entries(said)) {
    if (value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}
