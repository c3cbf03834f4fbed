// The machine on the stage: the drawing of the step at which the run is held, its captions and columns.

import { asked, isLost, whenLost } from "./connection.js";
import { Columns } from "./columns.js";
import { finder, lecturing, still, write } from "./dom.js";
import { ENDS, Moves } from "./moves.js";

const LARGER = 1.4; // in lecture mode
const AHEAD = 4;    // steps that are fetched before they are shown
const LAYOUTS = { large: 1384, medium: 990, small: 700, narrow: 366 }; // as in drawing.py
const OFFLINE = "There is no connection. This step is drawn as soon as it is back.";
const FORGOTTEN = "The server no longer has this run, so this step cannot be drawn.";

export class Machine {
  // `draw` gives the drawing of the step after so many others, in a layout; `choose` gets the step and index of a column; `wake`
  // has everything drawn again, and `hold` the run held at the end of the step that is shown.
  constructor(root, { draw, choose, wake, hold }) {
    Object.assign(this, { root, draw, wake, find: finder(root) });
    this.box = this.find(".ns-drawing");
    this.caption = this.find(".ns-caption");
    this.columns = new Columns(root, { choose, hold, restore: () => { this.drawn = ""; wake(); }, say: (text) => this.say(text) });
    this.clear();
    new ResizeObserver(wake).observe(this.box);
    whenLost(wake);
  }

  clear() {
    this.drawings = new Map(); // of the run, by step and layout; undefined until they are there
    this.drawn = "";
    this.box.replaceChildren();
    this.columns.clear();
  }

  get visible() {
    return this.box.clientWidth > 0; // else another tab is open
  }

  layout() {
    const width = this.box.clientWidth;
    const room = width / (lecturing() ? LARGER : 1);
    return room > 1190 ? "large" : room > 840 ? "medium" : width > 560 ? "small" : "narrow";
  }

  // Whether a step can be drawn. It and those after it are fetched.
  ready(step) {
    const layout = this.layout();
    for (let n = step; n < Math.min(this.steps, step + AHEAD); n += 1) this.fetch(n, layout);
    return typeof this.drawings.get(`${step}:${layout}`) === "string";
  }

  async fetch(step, layout) {
    const [key, { drawings }] = [`${step}:${layout}`, this];
    if (drawings.has(key)) return;
    drawings.set(key, undefined);
    const drawing = await asked(() => this.draw(step, layout));
    if (drawing === undefined) drawings.delete(key); else drawings.set(key, drawing || null);
    this.wake();
  }

  // Draws the step at which the run is held, as it is then. Until it is there, no other step stands in its place.
  show({ step, steps, inner, tick, going }) {
    this.steps = steps;
    if (!steps || !this.visible) return;
    const key = `${step}:${this.layout()}`;
    if (key !== this.drawn) {
      const drawn = this.ready(step);
      this.drawn = drawn ? key : "";
      if (drawn) this.put(this.drawings.get(key)); else this.box.replaceChildren();
    }
    const phase = Math.max(0, tick);
    if (this.drawn) {
      this.moves.to(still() ? ENDS.findLast((end) => end <= inner) ?? 0 : inner);
      this.columns.reach(phase, going);
    }
    const missing = this.drawings.get(key) === null ? FORGOTTEN : isLost() && !(this.drawn && inner < ENDS.at(-1)) ? this.lacking(step) : "";
    this.say(missing || this.columns.said || this.says?.[phase] || "", going);
  }

  // Without a connection, what to say where the next step is not there.
  lacking(step) {
    const next = this.drawn ? step + 1 : step;
    return next >= this.steps || typeof this.drawings.get(`${next}:${this.layout()}`) === "string" ? "" : OFFLINE;
  }

  say(text, going = false) {
    this.caption.ariaLive = going ? "off" : "polite";
    if (this.caption.said !== text) write(this.caption, this.caption.said = text); // the text there may be its translation
  }

  look(index) {
    this.columns.look(index);
  }

  put(drawing) {
    const { focused } = this.columns;
    this.box.innerHTML = drawing; // its texts are escaped on the server
    const picture = this.box.firstChild;
    const [, , width, height] = picture.getAttribute("viewBox").split(" ");
    const usual = LAYOUTS[picture.dataset.layout];
    picture.style.width = `${100 * width / usual}%`;
    picture.style.aspectRatio = `${width} / ${height}`;
    this.box.style.aspectRatio = `${usual} / ${height}`;
    this.says = JSON.parse(picture.dataset.says);
    this.moves = new Moves(picture);
    this.columns.take(picture, focused);
  }
}
