// @ts-check
// A click anywhere in a row opens its session.

/** The handler of such clicks. Links and buttons in the row, selecting text, and clicks with a key are left alone. @param {string} id */
export function opener(id) {
  return (/** @type {MouseEvent} */ event) => {
    const { altKey, ctrlKey, metaKey, shiftKey } = event;
    const within = /** @type {Element} */ (event.target).closest('a, button');
    if (within || altKey || ctrlKey || metaKey || shiftKey || !document.getSelection()?.isCollapsed) return;
    location.hash = `#/session/${id}`;
  };
}
