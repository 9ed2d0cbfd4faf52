// The pages use the colours of the host's theme, which has light and dark ones under the same names.

const token = (name: string) => `var(--chakra-colors-${name})`;

const STYLE = `
.tidegate { padding: 1rem; font-size: .875rem; color: ${token("fg")}; max-width: 100%; container-type: inline-size; }
/* on each element: the host's reset sets it on each, so that nothing inherits it */
.tidegate * { overflow-wrap: anywhere; }
.tidegate h1 { font-size: 1.25rem; font-weight: 600; margin-bottom: .75rem; }
.tidegate h2 { font-size: 1rem; font-weight: 600; margin: 1rem 0 .5rem; }
.tidegate a { color: ${token("blue-fg")}; text-decoration: underline; }
.tidegate .muted { color: ${token("fg-muted")}; }
.tidegate .wide { overflow-x: auto; }
.tidegate table { border-collapse: collapse; min-width: min(100%, 40rem); }
.tidegate th, .tidegate td { text-align: left; padding: .35rem .75rem .35rem 0; vertical-align: top; border-bottom: 1px solid ${token("border")}; }
.tidegate th { font-weight: 600; white-space: nowrap; }
.tidegate .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tidegate .note { border-left: 3px solid ${token("border-emphasized")}; background: ${token("bg-subtle")}; padding: .5rem .75rem; margin: .5rem 0; }
.tidegate .note.warn { border-color: ${token("orange-solid")}; }
.tidegate .note.bad { border-color: ${token("red-solid")}; }
.tidegate .state { font-weight: 600; white-space: nowrap; }
.tidegate .state.bad { color: ${token("red-fg")}; }
.tidegate .state.warn { color: ${token("orange-fg")}; }
.tidegate button { border: 1px solid ${token("border-emphasized")}; border-radius: .25rem; padding: .25rem .75rem; background: ${token("bg")}; cursor: pointer; }
.tidegate button:disabled { opacity: .5; cursor: default; }
.tidegate button.main { background: ${token("blue-solid")}; border-color: ${token("blue-solid")}; color: ${token("blue-contrast")}; }
.tidegate input, .tidegate select { border: 1px solid ${token("border-emphasized")}; border-radius: .25rem; padding: .25rem .5rem; background: ${token("bg")}; width: 100%; max-width: 100%; }
.tidegate :focus-visible { outline: 2px solid ${token("blue-focus-ring")}; outline-offset: 2px; }
.tidegate .bar { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .5rem 0; }
.tidegate .bar h2 { margin: 0; }
.tidegate .rows { display: grid; grid-template-columns: fit-content(14rem) minmax(0, 1fr) minmax(7rem, max-content); gap: .25rem .75rem; margin: .75rem 0; }
.tidegate .row { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid; row-gap: .25rem; align-items: center; }
.tidegate .axis { grid-column: 2; }
.tidegate .axis, .tidegate .ends { display: flex; justify-content: space-between; gap: .75rem; font-size: .75rem; font-variant-numeric: tabular-nums; min-height: 1.2rem; }
.tidegate .axis > :nth-child(2) { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tidegate .axis .focused { display: none; }
.tidegate .row svg:focus-visible ~ .axis .focused { display: inline; }
.tidegate .row .chosen { visibility: hidden; pointer-events: none; }
.tidegate .row svg:focus-visible .chosen { visibility: visible; }
.tidegate .row svg { width: 100%; height: 1.5rem; display: block; overflow: visible; touch-action: pan-y; cursor: crosshair; background: ${token("bg-muted")}; }
.tidegate ul.legend { list-style: none; padding: 0; margin: .5rem 0; }
.tidegate .legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
.tidegate .legend svg { width: 1.25rem; height: .9rem; display: inline-block; margin-right: .35rem; vertical-align: -2px; }
.tidegate .panel { border: 1px solid ${token("border")}; border-radius: .25rem; padding: .75rem; margin: .75rem 0; }
.tidegate .fields { display: grid; gap: .5rem; max-width: 26rem; }
.tidegate label { display: grid; grid-template-columns: 9rem minmax(0, 1fr); gap: .5rem; align-items: center; }
.tidegate .panel > h2:first-child { margin-top: 0; }
.tidegate .panel > button { margin-top: .5rem; }
.tidegate .panel:focus { outline: none; }
.tidegate ul:not(.legend, .strip) { padding-left: 1.25rem; margin: .5rem 0; list-style: disc; }
.tidegate p { margin: .5rem 0; }
.tidegate aside:empty { display: none; }
.tidegate .history { margin: 1.5rem 0; }
.tidegate .charts { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.tidegate .charts svg[role=img] { width: 100%; height: 3.5rem; display: block; margin: .25rem 0; background: ${token("bg-muted")}; }
.tidegate .meter { height: .3rem; width: 5rem; margin: .25rem 0 0; background: ${token("bg-muted")}; border-radius: .15rem; overflow: hidden; }
.tidegate .meter div { height: 100%; background: ${token("blue-solid")}; }
.tidegate .meter div.over { background: ${token("orange-solid")}; }
.tidegate .pipelines { width: 100%; }
.tidegate .pipelines th[scope=row] { white-space: normal; min-width: 8rem; }
.tidegate .pipelines th[scope=row] .muted { font-weight: 400; }
.tidegate .pipelines .said { min-width: 17rem; width: 60%; }
.tidegate button[aria-pressed=true] { border-color: ${token("blue-solid")}; background: ${token("bg-muted")}; }
.tidegate .facts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: .5rem 0; }
.tidegate .phases { display: flex; height: 1.25rem; border-radius: .25rem; overflow: hidden; max-width: 40rem; }
.tidegate .said-as-is { white-space: pre-wrap; }
.tidegate label.short { grid-template-columns: auto auto; }
.tidegate .sparkline { width: 5rem; height: 1.1rem; display: block; }
.tidegate .command { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin-top: .25rem; }
.tidegate code { font-family: monospace; }
.tidegate ul.strip { display: flex; flex-wrap: wrap; gap: .15rem; list-style: none; padding: 0; margin: .25rem 0; }
.tidegate .strip a { display: flex; align-items: center; padding: .2rem .1rem; text-decoration: none; }
.tidegate .strip svg { width: 1rem; height: .9rem; display: block; }
@container (min-width: 60rem) {
  .tidegate .split { display: grid; grid-template-columns: minmax(0, 1fr) 25rem; gap: 0 1.5rem; align-items: start; }
  .tidegate .split { grid-template-rows: auto 1fr; }
  .tidegate .split > :first-child, .tidegate .split > :last-child { grid-column: 1; }
  .tidegate .split > aside { grid-column: 2; grid-row: 1 / 3; position: sticky; top: .5rem; max-height: calc(100vh - 1rem); overflow-y: auto; }
  .tidegate .split .rows { grid-template-columns: fit-content(9rem) minmax(0, 1fr) minmax(6rem, max-content); }
}
@container (max-width: 45rem) {
  .tidegate th, .tidegate td { padding-right: .5rem; }
  .tidegate .rows { display: block; }
  .tidegate .row { grid-template-columns: minmax(0, 1fr) auto; gap: .1rem .75rem; margin: .6rem 0; }
  .tidegate .row > svg, .tidegate .row > .axis { grid-column: 1 / -1; }
  .tidegate .row > svg { grid-row: 2; }
  .tidegate .axis > :nth-child(2) { white-space: normal; }
  .tidegate .pipelines, .tidegate .pipelines tbody { display: block; }
  .tidegate .pipelines thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .tidegate .pipelines tr { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: .5rem .75rem; padding: .75rem 0; border-bottom: 1px solid ${token("border")}; }
  .tidegate .pipelines th, .tidegate .pipelines td { display: block; border: 0; padding: 0; text-align: left; min-width: 0; width: auto; white-space: normal; }
  .tidegate .pipelines th[scope=row], .tidegate .pipelines .said { grid-column: 1 / -1; min-width: 0; width: auto; }
  .tidegate .pipelines td:not(.said)::before { content: attr(data-name); display: block; font-size: .75rem; color: ${token("fg-muted")}; }
}
`;

const ID = "tidegate-style";

/** Put the style into the page, once, however often the script is run; a newer script's replaces an older one's. */
export function addStyle(): void {
  const there = document.getElementById(ID);
  const element = there ?? document.createElement("style");
  element.id = ID;
  element.textContent = STYLE;
  if (there === null) document.head.append(element);
}

export { token };
