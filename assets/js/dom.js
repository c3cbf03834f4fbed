// Small things that every part of the stage uses. All parts are joined into one function body, in the order of
// ui/run/stage.py, and see `element`, `trigger`, `props`, `server` and `watch` of gr.HTML.

const OUTPUT = new Set(["accepted", "resampled", "bonus"]);
const VERDICT = new Set(["accepted", "rejected", "discarded"]);
const TOKEN = new Set(["proposed", "accepted", "rejected", "discarded", "resampled", "bonus"]);

// Text from a prompt or a model enters the page through this function only, as text, never as markup.
function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const root = element.querySelector(".ns-stage");

function find(selector) {
  return element.querySelector(selector);
}

function percent(value) {
  if (value === undefined) return "–";
  const shown = value * 100;
  return (shown >= 10 || shown === 0 ? shown.toFixed(0) : shown.toPrecision(1)) + " %";
}

function number(value) {
  if (value === undefined) return "–";
  if (value === 0 || value === 1) return String(value);
  return value < 0.001 ? value.toExponential(1) : value.toFixed(3);
}

function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 10000) return (ms / 1000).toFixed(0) + " s";
  return (ms >= 10 ? ms.toFixed(0) : ms.toFixed(1)) + " ms";
}

// A token as one can point at it in a sentence: spaces and line breaks made visible.
function visible(event) {
  const text = event.text || event.token || "";
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "␣") || "∅";
}

const isDark = () => document.body.classList.contains("dark");
