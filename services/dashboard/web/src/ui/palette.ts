/** The colours of the style sheet, for what is drawn on a canvas. */

export type Palette = { text: string; muted: string; line: string; grid: string; series: readonly string[]; bad: string };

export function palette(element: Element): Palette {
  const styles = getComputedStyle(element);
  const colour = (name: string): string => styles.getPropertyValue(`--${name}`).trim();
  return {
    text: colour("text"),
    muted: colour("muted"),
    line: colour("accent"),
    grid: colour("line"),
    bad: colour("bad"),
    series: [1, 2, 3, 4, 5, 6].map((number) => colour(`series-${number}`)),
  };
}
