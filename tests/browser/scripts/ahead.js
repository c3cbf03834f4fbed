() => {
    const [stage, why] = [document.querySelector(".ns-stage"), document.querySelector(".ns-why")];
    window.ahead = [];
    new MutationObserver(() => {
        const { run, event } = why.dataset;
        const ahead = Number(event) >= Number(stage.dataset.cursor);
        if (!why.hidden && (run !== stage.dataset.run || ahead)) {
            window.ahead.push([run, stage.dataset.run, event, stage.dataset.cursor]);
        }
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
}
