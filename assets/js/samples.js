// Two small histograms below the race of a sampled run: its first tokens, drawn with drafts and without (ui/run/samples.py).

import { answerTo } from "./connection.js";
import { finder, make, write } from "./dom.js";
import { count, isGreedy, percent, visible } from "./format.js";
import { raced } from "./race.js";

const START = "Draw it again, with drafts and without";

export function mount({ element, server }) {
  const root = element.querySelector(".ns-samples");
  const [button, said, table, caption, body] = ["button", "[role=status]", "table", "caption", "tbody"].map(finder(root));
  let [run, going] = ["", 0];
  raced.follow(({ id, done, drafts }) => {
    root.hidden = !done || !drafts.whole.tokens || isGreedy(drafts.settings);
    if (id === run) return;
    [run, table.hidden] = [id, true];
    stop("");
  });
  button.addEventListener("click", () => { if (going) stop(""); else draw(); });

  function stop(words) {
    going = 0;
    write(button, START);
    write(said, words);
  }

  // Batch after batch, until there are enough or the reader stops.
  async function draw() {
    const mine = going = 1 + Math.floor(Math.random() * 1e9);
    write(button, "Stop");
    write(said, "Drawing …");
    let answer = { more: true };
    while (answer.more) {
      answer = await answerTo(() => server.draw([run, mine]));
      if (going !== mine) return;
      if (!answer?.rows) return stop(answer?.reason ?? "The server does not answer.");
      show(answer);
    }
    stop("");
  }

  function show({ draws, rows, sentence }) {
    table.hidden = false;
    write(caption, `${count(draws, "text")} of each. ${sentence}`);
    const cell = (name, share) => make("td", { "data-lane": name, style: `--share:${share.toFixed(4)}` }, percent(share));
    body.replaceChildren(...rows.map(({ text, drafts, plain }) => make("tr", "",
      make("th", { scope: "row" }, text === null ? "all others" : make("span", "ns-theirs", visible({ text }))),
      cell("drafts", drafts), cell("plain", plain))));
  }
}
