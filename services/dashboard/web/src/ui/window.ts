/** Which rows of a long table are drawn: those in view and some on either side. */

export type Span = { first: number; last: number; before: number; after: number };
const SPARE_ROWS = 8;
/** A view that moved by less draws nothing anew. */
const STEP_ROWS = 4;

/** Where a view begins, as far as it matters to which rows are drawn. */
export function step(rowHeight: number, scrollTop: number): number {
  const size = rowHeight * STEP_ROWS;
  return Math.floor(scrollTop / size) * size;
}

/** `last` is not drawn any more; `before` and `after` are the pixels that stand for the rest. */
export function span(rows: number, rowHeight: number, scrollTop: number, viewHeight: number): Span {
  const top = Math.min(Math.max(0, scrollTop), Math.max(0, rows * rowHeight - viewHeight));
  const first = Math.max(0, Math.floor(top / rowHeight) - SPARE_ROWS);
  const last = Math.min(rows, Math.ceil((top + viewHeight) / rowHeight) + SPARE_ROWS);
  return { first, last, before: first * rowHeight, after: (rows - last) * rowHeight };
}
