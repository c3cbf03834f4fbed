// node-llama-cpp's part of its adapter: an `Ask` per line in, an `Answer` per line out.
import readline from "node:readline";
import {
    DraftSequenceTokenPredictor, getLlama, InputLookupTokenPredictor, LlamaCompletion,
    LlamaGrammar, LlamaGrammarEvaluationState, LlamaLogLevel, TokenBias
} from "node-llama-cpp";

const K = 3, folder = process.argv[2];
const llama = await getLlama({
    gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 1
});
const [model, draft] = await Promise.all(["target", "draft"].map(
    (name) => llama.loadModel({modelPath: `${folder}/${name}.gguf`})));
const context = () => ({contextSize: 256, threads: 1});
const draftContext = await draft.createContext(context());
const predictors = {
    "plain": () => undefined,
    "draft model": () => new DraftSequenceTokenPredictor(
        draftContext.getSequence(), {minTokens: K, maxTokens: K, minConfidence: 0}),
    "prompt lookup": () => new InputLookupTokenPredictor({
        patternLength: {min: 1, max: 2}, predictionLength: {max: K}})
};
const sequences = {};

async function sequenceOf(way) {
    if (!(way in sequences)) {
        const tokenPredictor = predictors[way]();
        sequences[way] = (await model.createContext(context())).getSequence(
            tokenPredictor === undefined ? {} : {tokenPredictor});
    }
    await sequences[way].clearHistory();
    return sequences[way];
}

async function settings(ask, text) {
    const {forbidden = [], logit_bias = {}, letters, min_p = 0} = ask.options;
    const bias = new TokenBias(model.tokenizer);
    for (const [token, logit] of Object.entries(logit_bias)) bias.set(Number(token), {logit});
    for (const token of forbidden) bias.set(token, "never");
    const biased = forbidden.length > 0 || Object.keys(logit_bias).length > 0;
    const grammar = letters && new LlamaGrammar(llama, {grammar: `root ::= [${letters}]*`});
    return {
        temperature: ask.temperature, topP: ask.top_p, topK: 0, minP: min_p, seed: ask.seed,
        ...(biased ? {tokenBias: bias} : {}),
        ...(grammar ? {grammar} : {}),
        ...(ask.repetition_penalty === 1 ? {} : {repeatPenalty: {
            penalty: ask.repetition_penalty, punishTokens: () => [...ask.prompt, ...text]
        }})
    };
}

/** Tokens by `evaluate`, or by LlamaCompletion, which knows stop strings. */
async function answer(ask) {
    const sequence = await sequenceOf(ask.way), text = [];
    const before = {...sequence.tokenPredictions};
    const options = await settings(ask, text);
    if (ask.options.stop !== undefined) {
        const completion = new LlamaCompletion({contextSequence: sequence});
        await completion.generateCompletion(ask.prompt, {
            ...options, maxTokens: ask.max_tokens, customStopTriggers: [ask.options.stop],
            onToken: (tokens) => text.push(...tokens)
        });
        await completion.dispose({disposeSequence: false});
    } else {
        const {grammar} = options;
        if (grammar) options.grammarEvaluationState = new LlamaGrammarEvaluationState({model, grammar});
        for await (const token of sequence.evaluate(ask.prompt, {...options, yieldEogToken: true})) {
            text.push(token);
            if (text.length >= ask.max_tokens || model.isEogToken(token)) break;
        }
    }
    const {validated, refuted} = sequence.tokenPredictions;
    const accepted = validated - before.validated;
    return {
        token_ids: text, accepted, drafted: accepted + refuted - before.refuted,
        ...(ask.way === "plain" ? {accepted: null, drafted: null} : {})
    };
}

for await (const line of readline.createInterface({input: process.stdin}))
    console.log(JSON.stringify(await answer(JSON.parse(line)).catch(
        (error) => ({token_ids: [], error: error.message}))));
process.exit(0);
