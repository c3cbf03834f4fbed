// Two curves over all tokens, the area below both, and sliders that move the draft's: α = Σ min(p, q).

import { expectedTokens } from "./theory.js";

const [LEFT, RIGHT, STEP, BASE, TALL] = [-6, 6, 0.05, 170, 220]; // the axis in standard deviations of p, and the drawing in its units
const AHEAD = 4;
const bell = (x, center, width) => Math.exp(-(((x - center) / width) ** 2) / 2) / (width * Math.sqrt(2 * Math.PI));

export function mountOverlap(root) {
  const find = (selector) => root.querySelector(selector);
  const [distance, width] = ["distance", "width"].map((name) => find(`[name=${name}]`));
  const at = (x) => ((x - LEFT) / (RIGHT - LEFT)) * 400;
  const draw = () => {
    const [center, wide] = [Number(distance.value), Number(width.value)];
    const p = (x) => bell(x, 0, 1), q = (x) => bell(x, center, wide);
    const xs = Array.from({ length: Math.round((RIGHT - LEFT) / STEP) + 1 }, (_, n) => LEFT + n * STEP);
    const line = (f) => `M${xs.map((x) => `${at(x).toFixed(1)} ${(BASE - TALL * Math.min(f(x), 0.72)).toFixed(1)}`).join("L")}`;
    const lower = (x) => Math.min(p(x), q(x));
    const alpha = xs.reduce((sum, x) => sum + lower(x) * STEP, 0);
    find(".ns-ov-p").setAttribute("d", line(p));
    find(".ns-ov-q").setAttribute("d", line(q));
    find(".ns-ov-both").setAttribute("d", `${line(lower)}V${BASE}H0Z`);
    const apart = center < 0 ? -1 : 1;
    find(".ns-ov-q-name").setAttribute("x", at(center + apart * 1.2));
    find(".ns-ov-p-name").setAttribute("x", at(-apart * 1.2));
    for (const [name, side] of [["q", apart], ["p", -apart]]) find(`.ns-ov-${name}-name`).setAttribute("text-anchor", side > 0 ? "start" : "end");
    const token = center + 0.8 * apart;
    find(".ns-ov-token").setAttribute("d", `M${at(token)} ${BASE}V${BASE - TALL * lower(token)}`);
    const label = find(".ns-ov-token-name");
    label.textContent = "min(p, q)";
    label.setAttribute("x", at(token));
    const axis = find(".ns-ov-axis-name"); // at the end that the token's label leaves free
    axis.setAttribute("x", apart > 0 ? 0 : 400);
    axis.setAttribute("text-anchor", apart > 0 ? "start" : "end");
    find("output").textContent = Math.min(1, alpha).toFixed(2);
    find(".ns-ov-alpha span").textContent = ` → ${expectedTokens(Math.min(1, alpha), AHEAD).toFixed(1)} tokens per target pass with ${AHEAD} draft tokens`;
  };
  root.addEventListener("input", draw);
  draw();
}
