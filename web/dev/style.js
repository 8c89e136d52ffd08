// @ts-check
// The style sheet of the panel. It is constructed by script, which no Content-Security-Policy forbids.

export const STYLE = `
:host {
  all: initial; position: fixed; inset: auto 12px 12px auto; z-index: 2147483647; margin: 0; padding: 0; border: 0;
  background: none; overflow: visible; max-width: none; max-height: none; display: block;
  --back: #fff; --text: #1c2422; --muted: #55615d; --line: #cfd6d3; --soft: #eef2f0;
  --good: #0b6e5a; --warn: #8a5a00; --bad: #b3261e; --away: #f3e3bf; --lost: #f3c9c5; --catch-up: #2457c5;
}
@media (prefers-color-scheme: dark) {
  :host {
    --back: #171d1b; --text: #e7ecea; --muted: #a3b0ab; --line: #3a4541; --soft: #232b28;
    --good: #54c8ab; --warn: #e8b455; --bad: #ff8a80; --away: #4a3d1c; --lost: #582a27; --catch-up: #8fb3ff;
  }
}
/* What a page sets for all elements, such as a font or no cursor, is not for the panel. */
.all { all: initial; display: block; color-scheme: light dark; font: 13px/1.4 system-ui, sans-serif; color: var(--text); }
:host([docked]) { position: static; z-index: auto; }
:host([docked]) .panel {
  display: flex; flex-direction: column; width: 100%; max-height: none; padding: 2px 14px 12px; border-radius: 14px;
  box-shadow: none; font-size: 14px;
}
:host([docked]) :is(header, .only-alone) { display: none; }
:host([docked]) .rows { order: 1; }
:host([docked]) .end { order: 2; }
:host([docked]) button { min-height: 36px; padding: 3px 13px; }
:host([docked]) article { display: flex; flex-wrap: wrap; gap: 0 24px; }
:host([docked]) dl { flex: 1 1 260px; }
:host([docked]) :is(h3, canvas) { flex: 1 1 100%; }
:host([hidden]) { display: none; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
button, select, input { font: inherit; color: inherit; accent-color: var(--good); }
button, select {
  min-height: 30px; padding: 3px 9px; border: 1px solid var(--line); border-radius: 7px; background: var(--back);
  cursor: pointer; touch-action: manipulation;
}
button:hover { background: var(--soft); }
button:disabled { opacity: .5; cursor: default; }
button[aria-pressed=true] { border-color: var(--warn); color: var(--warn); font-weight: 600; }
:focus-visible { outline: 2px solid var(--catch-up); outline-offset: 1px; }
.badge {
  display: flex; align-items: center; gap: 7px; min-height: 34px; border-radius: 17px; padding: 4px 13px; font-weight: 600;
  box-shadow: 0 2px 8px #0004; white-space: nowrap;
}
.dot { width: 9px; height: 9px; border-radius: 50%; background: var(--muted); }
[data-state=attached] .dot { background: var(--good); }
[data-state=silent] .dot, [data-state=detached] .dot { background: var(--warn); border-radius: 2px; }
[data-state=closed] .dot { background: var(--bad); border-radius: 0; transform: rotate(45deg); }
.panel {
  width: min(380px, calc(100vw - 24px)); max-height: min(720px, calc(100vh - 80px)); overflow: auto; scrollbar-color: var(--line) var(--back); padding: 0 12px 12px;
  border: 1px solid var(--line); border-radius: 11px; background: var(--back); box-shadow: 0 6px 24px #0006;
}
header {
  position: sticky; top: 0; z-index: 1; display: flex; align-items: center; gap: 8px; padding: 8px 0; background: var(--back);
  cursor: move; touch-action: none;
}
h2 { flex: 1; margin: 0; font-size: 14px; }
h3 { display: flex; gap: 8px; align-items: center; margin: 8px 0 2px; font-size: 13px; overflow-wrap: anywhere; }
h3 label { flex: none; }
h3 span { flex: 1; font-weight: 400; color: var(--muted); }
h4 { margin: 12px 0 5px; font-size: 12px; font-weight: 600; color: var(--muted); }
.state { flex: none; padding: 0 8px; border-radius: 9px; background: var(--soft); font-weight: 600; white-space: nowrap; }
[data-state=attached] .state { color: var(--good); }
[data-state=silent] .state, [data-state=detached] .state { color: var(--warn); }
[data-state=closed] .state { color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(3, 1fr); gap: 5px 8px; margin: 5px 0; }
dt { color: var(--muted); font-size: 11px; }
dd { margin: 0; font-variant-numeric: tabular-nums; }
.truth dd { font-size: 17px; font-weight: 600; }
[data-verdict=good] { color: var(--good); }
[data-verdict=bad] { color: var(--bad); }
canvas { display: block; width: 100%; height: 44px; margin-top: 6px; border-bottom: 1px solid var(--line); }
.buttons { display: flex; flex-wrap: wrap; gap: 5px; }
label { display: flex; align-items: center; gap: 6px; flex: 1 1 150px; min-width: 0; }
label input[type=range] { flex: 1; min-width: 40px; }
output { min-width: 52px; text-align: right; font-variant-numeric: tabular-nums; }
.notice { min-height: 1.4em; margin: 8px 0 0; }
.notice:empty { min-height: 0; margin: 0; }
ol { margin: 6px 0 0; padding: 0; list-style: none; color: var(--muted); }
:host(:not([docked])) ol { min-height: 4.2em; } /* the buttons below stay where they are */
:host(:not([docked])) li:nth-child(n + 4) { display: none; }
li[data-mood=good] { color: var(--good); }
li[data-mood=warn] { color: var(--warn); }
li[data-mood=bad] { color: var(--bad); }
@media (prefers-reduced-motion: no-preference) { [data-state=detached] .dot { animation: pulse 1s infinite alternate; } }
@keyframes pulse { to { opacity: .3; } }
`;
