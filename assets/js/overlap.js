// Two curves over all tokens, the area below both, and sliders that move the draft's: α = Σ min(p, q).

import { change, finder } from "./dom.js";
import { sum } from "./format.js";
import { expectedTokens } from "./theory.js";

const [LEFT, RIGHT, STEP, BASE, TALL] = [-6, 6, 0.05, 170, 220]; // the axis in standard deviations of p, and the drawing in its units
const AHEAD = 4;
const bell = (x, center, width) => Math.exp(-(((x - center) / width) ** 2) / 2) / (width * Math.sqrt(2 * Math.PI));

export function mountOverlap(root) {
  const find = finder(root);
  const [distance, width] = ["distance", "width"].map((name) => find(`[name=${name}]`));
  const at = (x) => ((x - LEFT) / (RIGHT - LEFT)) * 400;
  const draw = () => {
    const [center, wide] = [Number(distance.value), Number(width.value)];
    const p = (x) => bell(x, 0, 1), q = (x) => bell(x, center, wide);
    const xs = Array.from({ length: Math.round((RIGHT - LEFT) / STEP) + 1 }, (_, n) => LEFT + n * STEP);
    const line = (f) => `M${xs.map((x) => `${at(x).toFixed(1)} ${(BASE - TALL * Math.min(f(x), 0.72)).toFixed(1)}`).join("L")}`;
    const lower = (x) => Math.min(p(x), q(x));
    const alpha = Math.min(1, STEP * sum(xs.map(lower)));
    const apart = center < 0 ? -1 : 1;
    const token = center + 0.8 * apart;
    const [toRight, toLeft] = apart > 0 ? ["start", "end"] : ["end", "start"];
    change(find(".ns-ov-p"), { d: line(p) });
    change(find(".ns-ov-q"), { d: line(q) });
    change(find(".ns-ov-both"), { d: `${line(lower)}V${BASE}H0Z` });
    change(find(".ns-ov-q-name"), { x: at(center + apart * 1.2), "text-anchor": toRight });
    change(find(".ns-ov-p-name"), { x: at(-apart * 1.2), "text-anchor": toLeft });
    change(find(".ns-ov-token"), { d: `M${at(token)} ${BASE}V${BASE - TALL * lower(token)}` });
    change(find(".ns-ov-token-name"), { x: at(token) });
    change(find(".ns-ov-axis-name"), { x: apart > 0 ? 0 : 400, "text-anchor": toRight }); // away from the token's label
    find("output").textContent = alpha.toFixed(2);
    find(".ns-ov-alpha span").textContent =
      ` → ${expectedTokens(alpha, AHEAD).toFixed(1)} tokens per target pass with ${AHEAD} draft tokens`;
  };
  root.addEventListener("input", draw);
  draw();
}
