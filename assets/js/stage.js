// The stage: takes numbered events from the server, shows them as tokens and rounds, and lets the reader replay them.

const FRAME_MS = 8;     // of our work a frame; the rest belongs to the browser
const SEEK_MS = 250;    // charts follow the cursor at most four times a second
const QUIET_MS = 3000;  // a run that goes on and has not been heard of for so long is asked about

const flow = new Flow(find("#tokens"));
const rounds = new Rounds(find("#rounds"));
const player = new Player(() => performance.now());
const tip = new Tip(find(".ns-tip"));
const controls = new Controls(player, wake);
let run = { id: "", serial: -1, live: false };
let shown = [];         // for every event that was ever shown, what it made: {flow, chip, event, born, judged}
let waiting = new Map(); // drafted tokens by "step:index"
let frame = 0;
let resyncing = false;
let known = 0;          // how many events the run is known to have
let heard = 0;          // when a message of it last came
let lastSeek = { upto: -1, at: 0 };
let seeking = false;
let pinned = null;

function receive() {
  let message;
  try {
    message = JSON.parse(props.value);
  } catch {
    return;
  }
  if (!message || message.serial < run.serial) return;
  if (message.serial > run.serial) begin(message);
  accept(message);
}

function begin(message) {
  run = { id: message.run, serial: message.serial, live: message.live };
  player.reset();
  flow.clear();
  rounds.clear();
  controls.reset();
  shown = [];
  waiting = new Map();
  pinned = null;
  resyncing = false;
  known = 0;
  // The page comes with the recorded run's charts, in light.
  lastSeek.upto = message.run === "recorded" && !isDark() ? message.events.length : -1;
  tip.hide();
  find(".ns-title").textContent = message.title;
  root.dataset.run = message.run;
  root.dataset.state = "running";
}

// Messages may have been dropped on the way (updates coalesce, a hidden panel gets none): then ask for the rest.
function accept(message) {
  const have = player.length;
  heard = performance.now();
  known = Math.max(known, message.total);
  if (message.first > have) return void resync();
  const fresh = message.events.slice(have - message.first);
  player.add(fresh);
  if (message.done && !player.done) {
    player.done = true;
    root.dataset.state = "done";
    announce();
  }
  wake();
}

// The server answers with so many events at a time: ask until there is nothing more to be had.
async function resync() {
  if (resyncing) return;
  resyncing = true;
  const asked = run.serial;
  let had;
  try {
    do {
      had = player.length;
      const answer = await server.resync([run.id, player.length]);
      if (asked !== run.serial) return;
      if (!answer) return void lose();
      accept(JSON.parse(answer));
    } while (had < player.length && player.length < known);
  } catch {
    // No connection: asked again when the run has been quiet for a while.
  } finally {
    if (asked === run.serial) resyncing = false;
  }
}

// The end may have been lost too, and with it every message that would have told that something is missing.
function listen() {
  if (run.id && !player.done && performance.now() - heard > QUIET_MS) resync();
}

// The server has forgotten the run: what is here is all there will be.
function lose() {
  player.done = true;
  root.dataset.state = "lost";
  trigger("lost", {});
  wake();
}

function announce() {
  const last = player.events[player.length - 1];
  const metrics = last && last.metrics;
  const rate = metrics && metrics.draft_acceptance_rate;
  find(".ns-said").textContent = metrics
    ? `Run finished: ${metrics.num_generated_tokens} tokens in ${metrics.num_spec_steps} rounds` +
      (typeof rate === "number" ? `, ${percent(rate)} of the drafts accepted.` : ".")
    : "Run finished.";
}

function wake() {
  if (!frame) frame = requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  const started = performance.now();
  const target = player.aim();
  while (player.cursor !== target && performance.now() - started < FRAME_MS) {
    if (player.cursor < target) show(player.cursor++); else unshow(--player.cursor);
  }
  if (player.playing || (player.following && run.live)) {
    flow.follow();
    rounds.follow();
  }
  controls.draw(run.live);
  if (player.cursor === target) tellCharts();
  if (player.busy) wake();
}

function show(n) {
  const event = player.events[n];
  if (event.kind === "started") {
    if (!shown[n]) flow.prompt(event), (shown[n] = {});
  } else if (event.kind === "step") {
    rounds.finish(event);
  } else if (TOKEN.has(event.kind)) {
    showToken(n, event);
  }
}

function showToken(n, event) {
  const key = `${event.step}:${event.index}`;
  const drafted = VERDICT.has(event.kind) ? waiting.get(key) : undefined;
  if (drafted && (drafted.judged === null || drafted.judged === n)) {
    drafted.judged = n;
    shown[n] = drafted;
    paint(drafted, event.kind);
    suggest(drafted, event.kind);
  } else if (shown[n]) {
    shown[n].flow.hidden = shown[n].chip.hidden = false;
    rounds.count(event, 1);
  } else {
    const token = { flow: flow.add(event), chip: rounds.add(event), born: n, judged: null };
    token.flow.token = token.chip.token = token;
    if (!flow.box.querySelector("[tabindex='0']")) token.flow.tabIndex = token.chip.tabIndex = 0;
    if (event.kind === "proposed") waiting.set(key, token);
    shown[n] = token;
    rounds.count(event, 1);
  }
  controls.count(event.kind, 1);
}

function unshow(n) {
  const event = player.events[n];
  if (event.kind === "step") rounds.unfinish(event);
  if (!TOKEN.has(event.kind)) return;
  const token = shown[n];
  if (token.judged === n) {
    paint(token, player.events[token.born].kind);
  } else {
    token.flow.hidden = token.chip.hidden = true;
    rounds.count(event, -1);
  }
  controls.count(event.kind, -1);
}

function paint(token, kind) {
  token.flow.dataset.kind = kind;
  token.chip.dataset.kind = kind;
}

// The number of the event that says most about a token at this point of the replay.
function telling(token) {
  return token.judged !== null && token.judged < player.cursor ? token.judged : token.born;
}

// Charts and headline numbers are made on the server, of the run up to the cursor; the next are asked for when the last
// ones are here. They are a call and not an event, since an event that Gradio holds back is sent with its old data.
function tellCharts() {
  if (!run.id || seeking || lastSeek.upto === player.cursor) return;
  seeking = true;
  setTimeout(seek, Math.max(0, lastSeek.at + SEEK_MS - performance.now()));
}

async function seek() {
  lastSeek = { upto: player.cursor, at: performance.now() };
  try {
    const answer = await server.seek([run.id, player.cursor, isDark()]);
    if (answer) document.dispatchEvent(new CustomEvent("ns-seek", { detail: JSON.parse(answer) }));
  } finally {
    seeking = false;
    wake();
  }
}

// Something is always explained: until the reader points at a token, it is the run's first refused draft.
function suggest(token, kind) {
  if (kind === "rejected" && !pinned && run.live) pin(token);
}

function pin(token) {
  if (pinned) for (const node of [pinned.flow, pinned.chip]) node.classList.remove("ns-pinned");
  pinned = token;
  for (const node of [token.flow, token.chip]) node.classList.add("ns-pinned");
  trigger("inspect", { run: run.id, event: telling(token), dark: isDark() });
}

// Pointing at a token points at it in both views.
function point(token, at) {
  tip.show(at, player.events[telling(token)], player.events[token.born]);
  for (const node of [token.flow, token.chip]) node.classList.add("ns-linked");
}

function unpoint(token) {
  tip.hide();
  for (const node of [token.flow, token.chip]) node.classList.remove("ns-linked");
}

for (const box of [flow.box, rounds.box]) {
  const tokenAt = (event) => event.target.closest && event.target.closest(".ns-token");
  box.addEventListener("pointerover", (e) => { const t = tokenAt(e); if (t && t.token) point(t.token, t); });
  box.addEventListener("pointerout", (e) => { const t = tokenAt(e); if (t && t.token) unpoint(t.token); });
  box.addEventListener("click", (e) => { const t = tokenAt(e); if (t && t.token) { focusToken(box, t); pin(t.token); } });
  box.addEventListener("focusin", (e) => {
    const t = tokenAt(e);
    if (!t || !t.token) return;
    const { token } = t;
    t.setAttribute("role", "button");
    t.setAttribute("aria-label", spoken(player.events[telling(token)], player.events[token.born]));
    point(token, t);
  });
  box.addEventListener("focusout", (e) => { const t = tokenAt(e); if (t && t.token) unpoint(t.token); });
  box.addEventListener("keydown", (e) => moveByKey(box, e, (node) => pin(node.token)));
}

window.addEventListener("resize", () => tip.hide(), { passive: true });
new MutationObserver(() => { lastSeek.upto = -1; wake(); }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
setInterval(listen, QUIET_MS);
watch("value", receive);
receive();
