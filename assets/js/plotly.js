// Plotly with the charts that have axes, which is all that this page has: from the page's own server, and not before a chart is
// to be drawn, for it is larger than the rest of the page together.

const IDLE_MS = 1000; // a page that is never idle draws all the same
const idle = window.requestIdleCallback ?? ((act) => setTimeout(act, 1));
let loading = null;

export const plotlyFile = () => new URL("./plotly-cartesian.min.js", import.meta.url);

export const whenIdle = (act) => idle(act, { timeout: IDLE_MS });

// Resolves once it is there; after a failure the next call tries again. What it does once and for all with its first figure takes
// as long as the figure: it has a turn of its own, with an empty one.
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = plotlyFile();
    script.onload = () => whenIdle(() => window.Plotly.newPlot(document.createElement("div"), []).then(resolve, reject));
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("Plotly could not be loaded"));
    };
    document.head.append(script);
  });
  return loading;
}
