// Plotly with the charts that have axes, which is all that this page has: from the page's own server, and not before a chart is
// to be drawn, for it is larger than the rest of the page together.

let loading = null;

export const plotlyFile = () => new URL("./plotly-cartesian.min.js", import.meta.url);

// Resolves once it is there; after a failure the next call tries again.
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = plotlyFile();
    script.onload = resolve;
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("Plotly could not be loaded"));
    };
    document.head.append(script);
  });
  return loading;
}
