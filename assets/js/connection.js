// The connection to the server: when it breaks, the page says so and waits. Gradio would ask every two seconds, show an error
// each time, and finally reload the page without its run and settings (see ui/gradio_gaps.py).
//
// Gradio's calls use `fetch`. A broken stream of results is ended properly here, so its call fails. The run on the stage
// continues on the server, and the stage requests the rest (see stage.js).

import { button, make } from "./dom.js";

const SOONEST_MS = 2000, LATEST_MS = 30000; // between requests to a silent server; the interval doubles each time
const LATER_MS = 50;
const OFFLINE = "You are offline. The page keeps its content and continues when the connection is back.";
const SILENT = "The server does not answer. The page keeps its content and tries again from time to time.";
const CUT = [
  { msg: "process_completed", success: false, output: { error: "The connection was lost.", visible: false } },
  { msg: "close_stream" },
];
const OLDER = "The server has a newer version of this page.";
const CALL = /\/gradio_api\/(queue\/join|run\/)/; // calls of the page's events
const SERVER = /\/gradio_api\/component_server/; // calls of server functions; without an answer they return `undefined`
const FAILED = JSON.stringify({ error: "The server cannot be reached." });

const RESULT = /"msg":"process_completed","event_id":"([^"]+)"/g;
const ENDS = 'data: {"msg":"close_stream"';

const ask = window.fetch.bind(window);
const joined = new Set(); // ids of calls without a result that joined since the stream of results began
const waiting = new Set(); // called once when the connection is back
const losses = new Set();  // called whenever it is lost
let box = null, status, offer;
let gone = false;
let wait = SOONEST_MS;
let timer = 0;
let leaving = false;

export function mount() {
  if (box || !window.gradio_config) return; // a run saved as a file has no server
  box = make("div", { class: "ns-connection", role: "status" }, status = make("span"), offer = make("span"));
  document.body.append(box);
  window.fetch = fetchOrWait;
  window.addEventListener("offline", () => lost());
  window.addEventListener("online", () => tryAgain());
  window.addEventListener("pagehide", () => { leaving = true; });
  window.addEventListener("pageshow", () => { leaving = false; });
}

// Whether the server is known to be unreachable.
export const isLost = () => box !== null && (gone || navigator.onLine === false);

// The connection is lost: call this once when it is back.
export function whenBack(act) {
  waiting.add(act);
  lost();
}

export function whenLost(act) {
  losses.add(act);
}

// A file could not be loaded: call this when the connection is back, or report a missing file.
export async function missed(file, act) {
  const answer = await ask(file, { method: "HEAD", cache: "no-store" }).catch(() => null);
  if (answer?.status === 404) say(OLDER, "Reload", () => location.reload()); else whenBack(act);
}

// Shows a message with a button. It stays when the state of the connection changes.
export function say(text, name, act) {
  if (!box) return;
  offer.replaceChildren(text);
  if (name) offer.append(button("", name, () => { say(""); act(); }));
}

// The server's answer, of which text is JSON; undefined without a connection, null if it is empty.
export async function answerTo(ask) {
  try {
    const answer = await ask();
    return typeof answer === "string" ? JSON.parse(answer || "null") : answer;
  } catch {
    return undefined;
  }
}

function lost() {
  if (!box) return;
  gone = true;
  status.textContent = navigator.onLine === false ? OFFLINE : SILENT;
  for (const act of losses) act();
  if (navigator.onLine !== false) timer ||= setTimeout(tryAgain, wait);
  else timer = clearTimeout(timer); // the browser reports when it is back
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
  if (url.endsWith("/gradio_api/app_id")) return new Promise(() => {}); // Gradio would reload the page after it
  try {
    const answer = await ask(input, leaving ? { ...init, keepalive: true } : init);
    const { event_id: id } = url.includes("/queue/join") ? await answer.clone().json().catch(() => ({})) : {};
    if (id) joined.add(id);
    return answer;
  } catch (error) {
    if (CALL.test(url) || SERVER.test(url)) lost();
    if (!CALL.test(url)) throw error;
    return new Response(FAILED, { status: 500 });
  }
}

// A stream of results that ends properly if it breaks, or if the server, perhaps another one, does not know it. The server ends
// it when no call waits. For a call that joined before the page knew, Gradio would not open another stream, so this goes on.
async function results(input, init) {
  joined.clear();
  const answer = await ask(input, init).catch(() => null);
  const known = answer?.ok ? answer : undefined;
  const decoder = new TextDecoder(), encoder = new TextEncoder();
  let reader = known?.body.getReader(), text = ""; // what was read of a message that is not whole
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          controller.enqueue(encoder.encode(text));
          return controller.close();
        }
        text += decoder.decode(value, { stream: true });
        const whole = text.includes("\n\n") ? text.slice(0, text.lastIndexOf("\n\n") + 2) : "";
        text = text.slice(whole.length);
        for (const [, id] of whole.matchAll(RESULT)) joined.delete(id);
        const end = joined.size ? whole.indexOf(ENDS) : -1;
        controller.enqueue(encoder.encode(end < 0 ? whole : whole.slice(0, end)));
        if (end < 0) return;
        joined.clear();
        const more = await ask(input, init).catch(() => null);
        reader = more?.ok ? more.body.getReader() : undefined; // then the next read fails, as from a broken stream
      } catch {
        if ((input.signal ?? init?.signal)?.aborted) return controller.close();
        lost();
        await new Promise((done) => setTimeout(done, LATER_MS)); // after earlier messages, which Gradio handles one turn later
        const ending = CUT.map((message) => `data: ${JSON.stringify(message)}\n\n`).join("");
        controller.enqueue(new TextEncoder().encode(ending));
        controller.close();
      }
    },
    cancel: (reason) => reader?.cancel(reason),
  }, { highWaterMark: 0 });
  return new Response(body, known);
}
