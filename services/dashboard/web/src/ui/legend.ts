/** What a chart's legend reads: under the pointer the value there, else something that is true of the whole. */
import type uPlot from "uplot";

type Words = (value: number | null) => string;
type Told = (u: uPlot, value: number, series: number, at: number | null) => string;

/** While nobody points, the last value of the line. */
export function lastOr(words: Words): Told {
  return (u, value, series, at) => words(at == null ? lastKnown(u.data[series] ?? []) : value);
}

/** While nobody points, nothing: for points that do not follow one another. */
export function pointed(words: Words): Told {
  return (_u, value, _series, at) => (at == null || value === null ? "" : words(value));
}

export function lastKnown(values: ArrayLike<number | null | undefined>): number | null {
  for (let at = values.length - 1; at >= 0; at -= 1) {
    const value = values[at];
    if (value != null) return value;
  }
  return null;
}
