// Asks from time to time whether the pairs that are loaded after the page answers are there; then the page is to follow them.

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
