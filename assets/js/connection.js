// The connection to the server: when it breaks, the page says so and waits. Gradio would ask every two seconds, show an error
// each time, and finally reload the page without its run and settings (see ui/host/process.py).
//
// Gradio's calls use `fetch`. A broken stream of results is ended properly here, so its call fails. The run on the stage
// continues on the server, and the stage requests the rest (see stage.js).

import { button, make } from "./dom.js";

const AGAIN_MS = 5000; // between requests to a silent server
const LATER_MS = 50;
const OFFLINE = "You are offline. The page keeps its content and continues when the connection is back.";
const SILENT = "The server does not answer. The page keeps its content and tries again from time to time.";
const OLDER = "The server has a newer version of this page.";
const CALL = /\/gradio_api\/(queue\/join|run\/)/; // calls of the page's events
const SERVER = /\/gradio_api\/component_server/; // calls of server functions; without an answer they return `undefined`
const FAILED = JSON.stringify({ error: "The server cannot be reached." });
const RESULT = /"msg":"process_completed","event_id":"([^"]+)"/;
const ENDS = 'data: {"msg":"close_stream"';
const CUT = { msg: "process_completed", success: false, output: { error: "The connection was lost.", visible: false } };

const ask = window.fetch.bind(window);
const joined = new Set(); // ids of calls without a result that joined since the stream of results began
const waiting = new Set(); // called once when the connection is back
const losses = new Set();  // called whenever it is lost
let box = null, status, offer;
let gone = false;

export function mount() {
  if (box || !window.gradio_config) return; // a run saved as a file has no server
  box = make("div", { class: "ns-connection", role: "status" }, status = make("span"), offer = make("span"));
  document.body.append(box);
  window.fetch = fetchOrWait;
  window.addEventListener("offline", lost);
  window.addEventListener("online", tryAgain);
  setInterval(() => { if (gone && navigator.onLine) tryAgain(); }, AGAIN_MS);
}

// Whether the server is known to be unreachable.
export const isLost = () => gone;

// The connection is lost: call this once when it is back.
function whenBack(act) {
  waiting.add(act);
  lost();
}

export const whenLost = (act) => losses.add(act);

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

// What the server answers. A call that fails without a connection is made again once that is back.
export async function asked(ask) {
  for (;;) {
    const answer = await (async () => ask())().catch(() => undefined);
    if (answer !== undefined || !gone) return answer;
    await new Promise((back) => { waiting.add(back); });
  }
}

// The same, of which text is JSON; undefined if the call fails, null if the answer is empty.
export async function answerTo(ask) {
  const answer = await asked(ask);
  try {
    return typeof answer === "string" ? JSON.parse(answer || "null") : answer;
  } catch {
    return undefined;
  }
}

function lost() {
  if (!box) return;
  gone = true;
  status.textContent = navigator.onLine ? SILENT : OFFLINE;
  for (const act of losses) act();
}

async function tryAgain() {
  const answer = await ask(new URL("./gradio_api/app_id", document.baseURI), { cache: "no-store" }).catch(() => null);
  if (!answer?.ok) return lost();
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
    const keepalive = init?.body?.includes?.('"fn_name":"leave"'); // it reaches the server although the page is left
    const answer = await ask(input, { ...init, keepalive });
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
  const open = async () => {
    const answer = await ask(input, init).catch(() => null);
    return answer?.ok ? answer : undefined; // then the next read fails, as from a broken stream
  };
  const first = await open();
  const decoder = new TextDecoder(), encoder = new TextEncoder();
  let reader = first?.body.getReader(), rest = ""; // what was read of a message that is not whole
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        const messages = (rest + decoder.decode(value, { stream: true })).split("\n\n");
        rest = messages.pop();
        for (const message of messages) joined.delete(RESULT.exec(message)?.[1]);
        const goesOn = joined.size > 0 && messages.at(-1)?.startsWith(ENDS);
        if (goesOn) messages.pop();
        controller.enqueue(encoder.encode(messages.map((message) => `${message}\n\n`).join("")));
        if (!goesOn) return;
        joined.clear();
        reader = (await open())?.body.getReader();
      } catch {
        if ((input.signal ?? init?.signal)?.aborted) return controller.close();
        lost();
        await new Promise((done) => setTimeout(done, LATER_MS)); // after earlier messages, which Gradio handles one turn later
        controller.enqueue(encoder.encode(`data: ${JSON.stringify(CUT)}\n\n${ENDS}}\n\n`));
        controller.close();
      }
    },
    cancel: (reason) => reader?.cancel(reason),
  }, { highWaterMark: 0 });
  return new Response(body, first);
}
