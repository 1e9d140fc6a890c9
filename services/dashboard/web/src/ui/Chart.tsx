/** uPlot for React: new data flows in, what the reader zoomed to stays. */
import { type ReactNode, useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { palette, type Palette } from "./axes";
import { useMedia } from "./Cards";

export type Plan = (colours: Palette) => Omit<uPlot.Options, "width" | "height">;

type Props = {
  /** What the picture shows, in words. */
  label: string;
  /** Names the plan: another one draws anew. */
  planKey: string;
  plan: Plan;
  data: uPlot.AlignedData;
  height?: number;
};

export function Chart({ label, planKey, plan, data, height = 280 }: Props): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const zoomed = useRef(false);
  const latest = useRef(data);
  latest.current = data;
  const scheme = useMedia("(prefers-color-scheme: dark)") ? "dark" : "light";

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const options = plan(palette(element));
    zoomed.current = false;
    const drawn = new uPlot(
      {
        ...options,
        width: element.clientWidth || 600,
        height,
        hooks: { ...options.hooks, setSelect: [(u) => (zoomed.current = u.select.width > 0)] },
      },
      latest.current,
      element,
    );
    drawn.over.addEventListener("dblclick", () => (zoomed.current = false));
    chart.current = drawn;
    const watcher = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      drawn.destroy();
      chart.current = null;
    };
  }, [planKey, scheme, height]);

  useEffect(() => {
    if (chart.current === null || chart.current.data === data) return;
    chart.current.setData(data, !zoomed.current);
    if (zoomed.current) chart.current.redraw();
  }, [data]);

  return <div className="chart" ref={box} role="img" aria-label={label} />;
}
