/** How a best latency is drawn: it holds until a round ends with a better one. */
import uPlot from "uplot";

const paths = uPlot.paths.stepped?.({ align: 1 });
export const stepped = paths ? { paths } : {};
