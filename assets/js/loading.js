// Polls until all pairs are loaded, then triggers an update of the page.

import { answerTo } from "./connection.js";

const EVERY_MS = 1000;

export function mount({ element, server, trigger }) {
  const look = async () => {
    if (!element.querySelector("[data-loading]")) return;
    if (await answerTo(() => server.loading()) === false) return void trigger("settled", {});
    setTimeout(look, EVERY_MS);
  };
  look();
}
