// The headline numbers follow the stage: the server makes their markup, with every text in it escaped.

document.addEventListener("ns-seek", (event) => {
  element.innerHTML = event.detail.stats;
});
