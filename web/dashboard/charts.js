// @ts-check
// Small charts of the last minutes.
import { bytes, clock, short } from './format.js';
import { html } from './html.js';
import { usePhone } from './phone.js';
import { columns } from './series.js';
import { useEffect, useRef, useState } from './vendor/hooks.js';
import uPlot from './vendor/uplot.js';

const HEIGHT = 110;
/** Lines differ in colour and in dashes. @type {number[][]} */
const DASHES = [[], [6, 4], [2, 3]];

/** @typedef {import('./series.js').Totals} Totals */
/** @typedef {{name: string, read: (totals: Totals) => number}} Line */
/** @typedef {{title: string, unit: (n: number) => string, rates?: boolean, lines: Line[]}} Subject what one chart shows */

const perSecond = (/** @type {number} */ n) => `${short(n)}/s`;
const whole = (/** @type {number} */ n) => short(Math.round(n));

/** @type {Subject[]} */
const SUBJECTS = [
  {
    title: 'Sessions',
    unit: whole,
    lines: [
      { name: 'attached', read: ({ sessions }) => sessions.attached },
      { name: 'detached', read: ({ sessions }) => sessions.detached },
    ],
  },
  {
    title: 'Resumes and disconnects',
    unit: perSecond,
    rates: true,
    lines: [
      { name: 'resumed', read: ({ resumed }) => resumed },
      { name: 'disconnected', read: ({ detached }) => detached },
      { name: 'new', read: ({ created }) => created },
    ],
  },
  {
    title: 'Messages',
    unit: perSecond,
    rates: true,
    lines: [
      { name: 'to clients', read: ({ to_client }) => to_client },
      { name: 'to game servers', read: ({ to_upstream }) => to_upstream },
    ],
  },
  { title: 'Replay buffers', unit: bytes, lines: [{ name: 'held', read: ({ buffer_bytes }) => buffer_bytes }] },
];

/** @param {{samples: Totals[], totals: Totals}} props */
export function Charts({ samples, totals }) {
  const all = [...samples, totals];
  const scrolls = usePhone(); // sideways, so the keyboard must reach it
  return html`<section class="charts" aria-label="The last minutes" tabindex=${scrolls ? 0 : undefined}>
    ${SUBJECTS.map((subject) => html`<${Chart} key=${subject.title} subject=${subject} samples=${all} />`)}
  </section>`;
}

/** @param {{subject: Subject, samples: Totals[]}} props */
function Chart({ subject, samples }) {
  const { title, unit, rates, lines } = subject;
  const reads = lines.map(({ read }) => read);
  const data = rates ? columns(samples, [], reads) : columns(samples, reads, []);
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  usePlot(place, subject, data, setAt);
  const value = (/** @type {number} */ line) => {
    const n = at === null ? newest(data[line + 1]) : data[line + 1][at];
    return n === null || n === undefined ? '–' : unit(n);
  };
  const words = lines.map(({ name }, i) => `${name} ${value(i)}`).join(', ');
  return html`
    <figure>
      <figcaption>${title} ${at !== null && html`<time>${clock(Number(data[0][at]) * 1000)}</time>`}</figcaption>
      <p class="legend">
        ${lines.map(({ name }, i) => html`<span><i aria-hidden="true" data-line=${i} />${name} <b>${value(i)}</b></span>`)}
      </p>
      <div class="plot" ref=${place} role="img" aria-label=${`${title}: ${words}`} />
    </figure>
  `;
}

/** @param {(number | null)[]} values */
function newest(values) {
  return values.findLast((value) => value !== null) ?? null;
}

/**
 * Keeps a plot in an element, as wide as that is, in the colours of the page.
 * @param {{current: HTMLElement | null}} place
 * @param {Subject} subject
 * @param {(number | null)[][]} data
 * @param {(at: number | null) => void} point
 */
function usePlot(place, subject, data, point) {
  const plot = useRef(/** @type {any} */ (null));
  const [scheme] = useState(() => matchMedia('(prefers-color-scheme: dark)'));
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(subject, element, point), data, element);
    };
    make();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    scheme.addEventListener('change', make);
    return () => {
      observer.disconnect();
      scheme.removeEventListener('change', make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data));
}

/** Steps of an axis of bytes. */
const POWERS = Array.from({ length: 45 }, (_, i) => 2 ** i);

/** Steps of an axis of integers. */
const WHOLES = Array.from({ length: 10 }, (_, i) => [10 ** i, 2 * 10 ** i, 5 * 10 ** i]).flat();
const STEPS = new Map([
  [bytes, POWERS],
  [whole, WHOLES],
]);

/** Times of day, with seconds where the whole axis is short. @param {any} _ @param {number[]} times */
function timesOf(_, times) {
  const minutes = times.length > 1 && times[1] - times[0] >= 60;
  return times.map((s) => (minutes ? clock(s * 1000).slice(0, 5) : clock(s * 1000)));
}

/** @param {Subject} subject @param {HTMLElement} element @param {(at: number | null) => void} point */
function options({ lines, unit }, element, point) {
  const colour = (/** @type {string} */ name) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = {
    stroke: colour('--faint'),
    grid: { stroke: colour('--grid'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: 'charts' } },
    scales: {
      y: {
        range: (/** @type {any} */ _, /** @type {number} */ _low, /** @type {number} */ high) => [
          0,
          Math.max(high * 1.1, 1),
        ],
      },
    },
    axes: [
      { ...axis, size: 22, space: 64, values: timesOf },
      {
        ...axis,
        size: 56,
        space: 28,
        incrs: STEPS.get(unit),
        values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(unit),
      },
    ],
    series: [
      {},
      ...lines.map(({ name }, i) => ({
        label: name,
        stroke: colour(`--line-${i}`),
        width: 2,
        dash: DASHES[i],
        points: { show: false },
        spanGaps: true,
      })),
    ],
    hooks: { setCursor: [(/** @type {any} */ plot) => point(plot.cursor.left >= 0 ? plot.cursor.idx : null)] },
  };
}
