// The pages use the colours of the host's theme, which has light and dark ones under the same names.

const token = (name: string) => `var(--chakra-colors-${name})`;

const STYLE = `
.tidegate { padding: 1rem; font-size: .875rem; color: ${token("fg")}; max-width: 100%; }
.tidegate h1 { font-size: 1.25rem; font-weight: 600; margin-bottom: .75rem; }
.tidegate h2 { font-size: 1rem; font-weight: 600; margin: 1rem 0 .5rem; }
.tidegate a { color: ${token("blue-fg")}; text-decoration: underline; }
.tidegate .muted { color: ${token("fg-muted")}; }
.tidegate .wide { overflow-x: auto; }
.tidegate table { border-collapse: collapse; width: 100%; }
.tidegate th, .tidegate td { text-align: left; padding: .35rem .75rem .35rem 0; vertical-align: top; border-bottom: 1px solid ${token("border")}; }
.tidegate th { font-weight: 600; white-space: nowrap; }
.tidegate .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tidegate .note { border-left: 3px solid ${token("border-emphasized")}; background: ${token("bg-subtle")}; padding: .5rem .75rem; margin: .5rem 0; overflow-wrap: anywhere; }
.tidegate .note.bad { border-color: ${token("red-solid")}; }
.tidegate .state { font-weight: 600; white-space: nowrap; }
.tidegate .state.bad { color: ${token("red-fg")}; }
.tidegate .state.warn { color: ${token("orange-fg")}; }
.tidegate button { border: 1px solid ${token("border-emphasized")}; border-radius: .25rem; padding: .25rem .75rem; background: ${token("bg")}; cursor: pointer; }
.tidegate button:disabled { opacity: .5; cursor: default; }
.tidegate button.main { background: ${token("blue-solid")}; border-color: ${token("blue-solid")}; color: ${token("blue-contrast")}; }
.tidegate input { border: 1px solid ${token("border-emphasized")}; border-radius: .25rem; padding: .25rem .5rem; background: ${token("bg")}; width: 10rem; }
.tidegate :focus-visible { outline: 2px solid ${token("blue-focus-ring")}; outline-offset: 2px; }
.tidegate .bar { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .5rem 0; }
.tidegate .row { display: grid; grid-template-columns: minmax(7rem, 14rem) 1fr minmax(6rem, 9rem); gap: .75rem; align-items: center; margin: .25rem 0; }
.tidegate .row > :first-child { overflow-wrap: anywhere; }
.tidegate .row svg { width: 100%; height: 1.5rem; display: block; touch-action: pan-y; cursor: crosshair; background: ${token("bg-muted")}; }
.tidegate .legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
.tidegate .legend svg { width: 1.25rem; height: .9rem; display: inline-block; margin-right: .35rem; vertical-align: -2px; }
.tidegate .panel { border: 1px solid ${token("border")}; border-radius: .25rem; padding: .75rem; margin: .75rem 0; }
.tidegate label { display: inline-flex; gap: .5rem; align-items: center; }
.tidegate .phases { display: flex; height: 1.25rem; border-radius: .25rem; overflow: hidden; max-width: 40rem; }
@media (max-width: 600px) { .tidegate .row { grid-template-columns: 1fr; gap: .1rem; margin: .6rem 0; } }
`;

const ID = "tidegate-style";

/** Put the style into the page, once, however often the script is run. */
export function addStyle(): void {
  if (document.getElementById(ID) !== null) return;
  const element = document.createElement("style");
  element.id = ID;
  element.textContent = STYLE;
  document.head.append(element);
}

export { token };
