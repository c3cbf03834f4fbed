const now = performance.now.bind(performance), stage = document.querySelector(".ns-stage");
let looks = 0;
performance.now = () => now() / 100 + ++looks;
window.frames = [];
new MutationObserver((changes) =>
  window.frames.push([stage.dataset.run, Number(stage.dataset.cursor), changes.length]))
    .observe(stage, { subtree: true, childList: true, attributes: true });
