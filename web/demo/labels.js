// @ts-check
// Places the names of players so that none covers another.

/** @typedef {{x: number, half: number, text: string, bold: boolean, above: number, below: number}} Label `x`: the middle; `half` of its width; `above` and `below`: the two heights it may be written at */
/** @typedef {{x: number, y: number, text: string, bold: boolean}} Placed */

/**
 * Places labels in their order: below the player, or above if that is taken or outside. A label
 * that fits at neither place is left out; the player's number stays.
 * @param {Label[]} labels
 * @param {{width: number, height: number, line: number}} field `line`: the height of a line of text
 * @returns {Placed[]}
 */
export function place(labels, { width, height, line }) {
  /** @type {{x: number, y: number, half: number}[]} */
  const taken = [];
  /** @type {Placed[]} */
  const placed = [];
  for (const { x, half, text, bold, above, below } of labels) {
    const inside = Math.min(Math.max(x, half), width - half);
    const free = (/** @type {number} */ y) =>
      taken.every((other) => Math.abs(other.x - inside) >= other.half + half || Math.abs(other.y - y) >= line);
    const y = [below, above].find((at) => at >= line / 2 && at + line / 2 <= height && free(at));
    if (y === undefined) continue;
    taken.push({ x: inside, y, half });
    placed.push({ x: inside, y, text, bold });
  }
  return placed;
}
