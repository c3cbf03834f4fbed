// The connection to the server: when it breaks, the page says so and waits, instead of Gradio, which would ask again every two
// seconds, complain each time, and at last load the page anew, without its run and settings.
//
// Gradio's calls go through `fetch`. A stream of results that breaks is ended here in good order; what was being waited for has
// failed then. The run on the stage has not: the server goes on with it, and the stage asks for the rest (see stage.js).

import { button, hold, make } from "./dom.js";

const SOONEST_MS = 2000, LATEST_MS = 30000; // between questions to a server that does not answer; each takes twice as long
const LATER_MS = 50;
const OFFLINE = "You are offline. What is here stays; the page goes on when the connection is back.";
const SILENT = "The server does not answer. What is here stays; it is asked again from time to time.";
const CUT = { msg: "process_completed", success: false, output: { error: "The connection was lost.", visible: false } };
const OLDER = "This page is older than the server, which has no more for it.";
const CALL = /\/gradio_api\/(queue\/join|run\/)/; // what an event of the page calls
const SERVER = /\/gradio_api\/component_server/; // a function of the server; without an answer it gives `undefined`
const FAILED = JSON.stringify({ error: "The server cannot be reached." });

const ask = window.fetch.bind(window);
const waiting = new Set(); // called once when the connection is back
const losses = new Set();  // called whenever it is found to be gone
let box = null, status, offer;
let gone = false;
let wait = SOONEST_MS;
let timer = 0;
let leaving = false;

export function mount() {
  if (box || !window.gradio_config) return; // a run in a file of its own has no server
  box = hold("div", "ns-connection", status = make("span"), offer = make("span"));
  box.setAttribute("role", "status");
  document.body.append(box);
  window.fetch = fetchOrWait;
  window.addEventListener("offline", () => lost());
  window.addEventListener("online", () => tryAgain());
  window.addEventListener("pagehide", () => { leaving = true; });
  window.addEventListener("pageshow", () => { leaving = false; });
}

// Whether the server is known to be out of reach.
export const isLost = () => box !== null && (gone || navigator.onLine === false);

// Calls once when the connection is back, now that it is gone.
export function whenBack(act) {
  waiting.add(act);
  lost();
}

export function whenLost(act) {
  losses.add(act);
}

// A file of the page could not be loaded: calls once when the connection is back, unless it is there and the file is not.
export async function missed(file, act) {
  const answer = await ask(file, { method: "HEAD", cache: "no-store" }).catch(() => null);
  if (answer?.status === 404) say(OLDER, "Load it anew", () => location.reload()); else whenBack(act);
}

// Says something with a button to do something about it; the state of the connection, which stands beside it, does not take it away.
export function say(text, name, act) {
  if (!box) return;
  offer.replaceChildren(text);
  if (name) offer.append(button("", name, () => { say(""); act(); }));
}

// What the server answers; undefined where there is no connection.
export async function answerTo(ask) {
  try {
    return await ask();
  } catch {
    return undefined;
  }
}

function lost() {
  if (!box) return;
  gone = true;
  status.textContent = navigator.onLine === false ? OFFLINE : SILENT;
  for (const act of losses) act();
  if (navigator.onLine !== false) timer ||= setTimeout(tryAgain, wait); // else the browser tells when that is over
}

async function tryAgain() {
  clearTimeout(timer);
  timer = 0;
  const answer = await ask(new URL("./gradio_api/app_id", document.baseURI), { cache: "no-store" }).catch(() => null);
  if (!answer?.ok) {
    wait = Math.min(LATEST_MS, 2 * wait);
    return lost();
  }
  wait = SOONEST_MS;
  gone = false;
  status.textContent = "";
  const acts = [...waiting];
  waiting.clear();
  for (const act of acts) act();
}

async function fetchOrWait(input, init) {
  const url = input instanceof Request ? input.url : String(input);
  if (url.includes("/gradio_api/queue/data")) return results(input, init);
  if (url.endsWith("/gradio_api/app_id")) return new Promise(() => {}); // Gradio would load the page anew after it
  try {
    return await ask(input, leaving ? { ...init, keepalive: true } : init);
  } catch (error) {
    if (CALL.test(url) || SERVER.test(url)) lost();
    if (!CALL.test(url)) throw error;
    return new Response(FAILED, { status: 500 });
  }
}

// A stream of results, with a good end where it breaks.
async function results(input, init) {
  const signal = input.signal ?? init?.signal;
  let answer, reader;
  const cut = (controller) => {
    if (signal?.aborted) return controller.close();
    lost();
    setTimeout(() => { // after what came before it, which Gradio takes up one turn later
      for (const message of [CUT, { msg: "close_stream" }]) controller.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(message)}\n\n`));
      controller.close();
    }, LATER_MS);
  };
  try {
    answer = await ask(input, init);
    if (!answer.ok) throw new Error("the server knows nothing of it"); // another server, perhaps
    reader = answer.body.getReader();
  } catch {
    return new Response(new ReadableStream({ start: cut }));
  }
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close(); else controller.enqueue(value);
      } catch {
        cut(controller);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(body, answer);
}
