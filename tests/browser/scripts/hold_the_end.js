const plain = window.fetch.bind(window);
const goOn = new Promise((done) => { window.letGo = done; });
window.joined = 0; // calls whose answer Gradio has read
window.fetch = async (input, init) => {
    const [answer, url] = [await plain(input, init), String(input.url ?? input)];
    const read = answer.json.bind(answer);
    if (url.includes("/queue/join")) answer.json = () => read()
      .finally(() => setTimeout(() => { window.joined += 1; }));
    if (!url.includes("/queue/data")) return answer;
    const reader = answer.body.getReader();
    const body = new ReadableStream({
        async pull(controller) {
            const { done, value } = await reader.read();
            if (done) return controller.close();
            const words = new TextDecoder().decode(value);
            const end = window.holds && !window.ending
              ? words.indexOf('data: {"msg":"close_stream"') : -1;
            if (end < 0) return controller.enqueue(value);
            const write = (part) => controller.enqueue(new TextEncoder().encode(part));
            write(words.slice(0, end));
            window.ending = true;
            await goOn;
            write(words.slice(end));
        },
    });
    return new Response(body, answer);
};
