/** Two texts line by line beside one another. */

export type Side = { number: number; text: string };
/** `left` and `right` are both there where a line stayed, or where one took the other's place. */
export type Line = { same: boolean; left: Side | null; right: Side | null };

/** Above this many pairs of lines the middle is not searched for lines that stayed. */
const MOST_PAIRS = 9_000_000;
/** Lines that share less than this of themselves are two lines, not one that was changed. */
const LEAST_ALIKE = 0.4;

export function diffLines(before: string, after: string): Line[] {
  const left = before.split("\n");
  const right = after.split("\n");
  const head = shared(left, right, (at, lines) => lines[at]);
  const tail = shared(left.slice(head), right.slice(head), (at, lines) => lines[lines.length - 1 - at]);
  const stayed = [
    ...numbers(head).map((at) => [at, at] as const),
    ...longestCommon(left.slice(head, left.length - tail), right.slice(head, right.length - tail)).map(([l, r]) => [l + head, r + head] as const),
    ...numbers(tail).map((at) => [left.length - tail + at, right.length - tail + at] as const),
  ];
  const lines: Line[] = [];
  let [l, r] = [0, 0];
  for (const [nextLeft, nextRight] of [...stayed, [left.length, right.length] as const]) {
    lines.push(...replaced(left, l, nextLeft, right, r, nextRight));
    if (nextLeft < left.length) lines.push({ same: true, left: side(left, nextLeft), right: side(right, nextRight) });
    [l, r] = [nextLeft + 1, nextRight + 1];
  }
  return lines;
}

export type Parting = { start: number; endOne: number; endOther: number };

/** Where two lines part and meet again: `slice(start, end)` is what differs. Null where they share little. */
export function parting(one: string, other: string): Parting | null {
  const shorter = Math.min(one.length, other.length);
  let start = 0;
  while (start < shorter && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < shorter - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const alike = one.slice(0, start).trim().length + one.slice(one.length - end).trim().length;
  if (alike < LEAST_ALIKE * Math.max(one.trim().length, other.trim().length)) return null;
  return { start, endOne: one.length - end, endOther: other.length - end };
}

function replaced(left: readonly string[], l: number, leftEnd: number, right: readonly string[], r: number, rightEnd: number): Line[] {
  const count = Math.max(leftEnd - l, rightEnd - r, 0);
  return numbers(count).map((at) => ({
    same: false,
    left: l + at < leftEnd ? side(left, l + at) : null,
    right: r + at < rightEnd ? side(right, r + at) : null,
  }));
}

function side(lines: readonly string[], at: number): Side {
  return { number: at + 1, text: lines[at] ?? "" };
}

function shared(left: readonly string[], right: readonly string[], pick: (at: number, lines: readonly string[]) => string | undefined): number {
  let count = 0;
  while (count < Math.min(left.length, right.length) && pick(count, left) === pick(count, right)) count += 1;
  return count;
}

/** Pairs of places of the longest sequence of lines that both have. */
function longestCommon(left: readonly string[], right: readonly string[]): [number, number][] {
  if (left.length * right.length > MOST_PAIRS) return [];
  const width = right.length + 1;
  const length = new Uint32Array((left.length + 1) * width);
  const known = (l: number, r: number): number => length[l * width + r] ?? 0;
  for (let l = left.length - 1; l >= 0; l -= 1) {
    for (let r = right.length - 1; r >= 0; r -= 1) {
      length[l * width + r] = left[l] === right[r] ? known(l + 1, r + 1) + 1 : Math.max(known(l + 1, r), known(l, r + 1));
    }
  }
  const pairs: [number, number][] = [];
  for (let l = 0, r = 0; l < left.length && r < right.length; ) {
    if (left[l] === right[r]) pairs.push([l++, r++]);
    else if (known(l + 1, r) >= known(l, r + 1)) l += 1;
    else r += 1;
  }
  return pairs;
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, at) => at);
}
