// Replays two recorded runs side by side, both on one clock that runs at their true speed or slower.

const race = element.querySelector(".ns-race");
const clock = race.querySelector(".ns-race-clock");
const speed = race.querySelector(".ns-race-speed");
const verdict = race.querySelector(".ns-verdict");
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const lanes = [...race.querySelectorAll(".ns-lane")].map((box) => ({
  box,
  name: box.dataset.lane,
  text: box.querySelector(".ns-lane-text"),
  bar: box.querySelector(".ns-track i"),
  numbers: box.querySelector(".ns-lane-numbers"),
}));
let shown = null;
let frame = 0;
let elapsed = 0;
let last = 0;

function receive() {
  let data;
  try {
    data = JSON.parse(props.value);
  } catch {
    return;
  }
  if (shown && shown.serial === data.serial) return;
  shown = data;
  race.hidden = false;
  begin();
}

function begin() {
  cancelAnimationFrame(frame);
  elapsed = 0;
  last = 0;
  race.dataset.state = "running";
  verdict.replaceChildren();
  for (const lane of lanes) {
    lane.run = shown[lane.name];
    lane.next = lane.passes = lane.output = 0;
    lane.text.replaceChildren();
    lane.box.dataset.state = "running";
  }
  if (still.matches) elapsed = Infinity;
  frame = requestAnimationFrame(tick);
}

function tick(now) {
  if (last) elapsed += ((now - last) / 1000) * Number(speed.value);
  last = now;
  for (const lane of lanes) advance(lane);
  const longest = Math.max(...lanes.map((lane) => lane.run.seconds));
  clock.textContent = `${Math.min(elapsed, longest).toFixed(2)} s`;
  if (elapsed < longest) frame = requestAnimationFrame(tick);
  else finish();
}

function advance(lane) {
  const { tokens, passes, seconds } = lane.run;
  const fresh = document.createDocumentFragment();
  while (lane.next < tokens.length && tokens[lane.next][0] <= elapsed) {
    const [, text, kind] = tokens[lane.next++];
    if (kind !== "rejected") lane.output += 1;
    const node = document.createElement("span");
    node.className = "ns-token";
    node.dataset.kind = kind;
    node.textContent = text;
    fresh.append(node);
  }
  while (lane.passes < passes.length && passes[lane.passes] <= elapsed) lane.passes += 1;
  if (fresh.childNodes.length) {
    lane.text.append(fresh);
    lane.text.scrollTop = lane.text.scrollHeight;
  }
  const all = Math.max(1, tokens.filter(([, , kind]) => kind !== "rejected").length);
  lane.bar.style.width = `${(100 * lane.output) / all}%`;
  const time = Math.min(elapsed, seconds);
  const rate = time > 0 ? Math.round(lane.output / time) : 0;
  lane.numbers.textContent = `${lane.output} tokens · ${lane.passes} passes · ${time.toFixed(2)} s · ${rate} tokens/s`;
  if (elapsed >= seconds && lane.box.dataset.state !== "done") lane.box.dataset.state = "done";
}

function finish() {
  race.dataset.state = "done";
  verdict.replaceChildren(...shown.verdict.map((sentence) => {
    const node = document.createElement("p");
    node.textContent = sentence;
    return node;
  }));
}

race.querySelector(".ns-race-again").addEventListener("click", () => shown && begin());
watch("value", receive);
receive();
