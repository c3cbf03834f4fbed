// The page in a language other than English, which alone loads this file, followed by the call of `speak` with the language's
// table. A classic script, because it must run before anything is drawn. Its observer translates each text as it enters the
// page, before the browser draws it. The table's keys are the page's English texts: {name} stands for what varies, <0>…</0> for
// an element.

window.speak = (table) => {
  // Texts of models and visitors, and figures, whose words are translated before they are drawn.
  const THEIRS = "script, style, pre, textarea, .ns-token, .ns-chip, .ns-paragraph, .ns-clean, .ns-own, .ns-your-text, .ns-lp-text, " +
    ".ns-lp-rest th:not(:has(em)), .ns-odds tbody th > :not(em), .ns-tip-head span, .ns-others-round th span, .ns-theirs, #learn-prompt, .js-plotly-plot";
  const ATTRIBUTES = ["title", "aria-label", "placeholder", "aria-valuetext", "data-name", "data-head"];
  const MOST_KNOWN = 5000;
  const THOUSANDS = { es: "\u202f" }[document.documentElement.lang];
  const WORD = /\p{L}{2}/u;
  const NAME = /(?<!%)\{(\w+)\}/g;
  const known = new Map(); // translations by English text; undefined where there is none
  const patterns = Object.keys(table).filter((key) => key.match(NAME)).map(pattern).sort((a, b) => b.weight - a.weight);

  // A key with names as a regular expression. {n}, {n1} … are numbers. Quotes contain a model's text, except for {said} … In a
  // key of one sentence, a name stands for less than a sentence, except at the end.
  function pattern(key) {
    const literals = key.split(/(?<!%)\{\w+\}/);
    const names = [...key.matchAll(NAME)].map(([, name]) => name);
    const quoted = new Set(names.filter((name) => key.includes(`“{${name}}`)));
    const one = !/[.!?] /.test(key);
    const value = (name) => /^n\d?$/.test(name) ? "[^\\p{L}]+?" : one && !quoted.has(name) && !key.endsWith(`{${name}}`) ? "(?:(?![.!?;] ).)*?" : ".*?";
    const group = (name, n) => names.indexOf(name) < n ? `\\k<${name}>` : `(?<${name}>${value(name)})`;
    const source = literals.map((text, n) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + (n < names.length ? group(names[n], n) : "")).join("");
    return {
      regex: new RegExp(`^${source}$`, "su"), said: table[key], weight: literals.join("").length, kept: (name) => quoted.has(name) && !name.startsWith("said"),
      longest: literals.reduce((a, b) => (b.length > a.length ? b : a)),
    };
  }

  // The translation of a text that is a key or matches one, but for its full stop; undefined for others.
  function find(text) {
    if (table[text] !== undefined) return table[text];
    for (const { regex, said, longest, kept } of patterns) {
      const groups = text.includes(longest) && regex.exec(text)?.groups;
      if (groups) return said.replace(NAME, (_, name) => kept(name) ? groups[name] : translated(groups[name]));
    }
    return text.endsWith(".") ? find(text.slice(0, -1))?.concat(table["."]) : undefined;
  }

  // The same for a text of several lines, sentences, clauses or items, of which neighbours may be one key. Of clauses and
  // items, all must be keys. The separators keep their places.
  const SEPARATORS = [/(\n)/, /((?<=[.!?…]”?)\s+)/, /(; )/, /(, | and | or | · |: )/];
  function findParts(text, level = 0) {
    if (level === SEPARATORS.length) return undefined;
    const parts = text.split(SEPARATORS[level]);
    if (parts.length < 2) return findParts(text, level + 1);
    const all = level > 1;
    let [said, some] = ["", false];
    for (let n = 0; n < parts.length;) {
      const between = n % 2 === 1;
      let end = between ? n + 1 : Math.min(parts.length, n + 13);
      let found = between ? (all ? table[parts[n]] : undefined) : find(parts.slice(n, end).join(""));
      while (found === undefined && end > n + 1) found = find(parts.slice(n, end -= 2).join(""));
      if (!between) found ??= findParts(parts[n], level + 1);
      if (found === undefined && all && WORD.test(parts[n])) return undefined;
      some ||= found !== undefined;
      said += found ?? parts[n];
      n = end;
    }
    return some ? said : undefined;
  }

  // Numbers as this language groups their digits.
  const grouped = (text) => (THOUSANDS ? text.replace(/(?<=\d),(?=\d{3}(?!\d))/g, THOUSANDS) : text);

  function translated(text) {
    if (!WORD.test(text)) return grouped(text);
    if (known.has(text)) return known.get(text) ?? grouped(text);
    const [, before, inner, after] = /^(\s*)(.*?)(\s*)$/s.exec(text);
    const said = find(inner.replace(/\s+/g, " ")) ?? findParts(inner);
    if (known.size >= MOST_KNOWN) known.clear();
    known.set(text, said && grouped(before + said.replace(/(?<=[，。：；？！、]) +/g, "").replace(/(?<=\d)，(?=\d)/g, "、") + after));
    return known.get(text) ?? grouped(text);
  }
  window.translated = translated;

  // An element's content as a key; `inner` takes its elements in the order of their numbers.
  function keyOf(element, inner) {
    return [...element.childNodes].map((node) => {
      if (node.nodeType === Node.TEXT_NODE) return node.data;
      if (node.nodeType !== Node.ELEMENT_NODE) return "";
      const n = inner.push(node) - 1;
      return node.textContent.trim() ? `<${n}>${keyOf(node, inner)}</${n}>` : `<${n}/>`;
    }).join("");
  }

  const fill = (element, contents) => element.replaceChildren(...contents);

  // Translates an element that mixes text and elements, as a whole; whether it could.
  function mixed(element) {
    if (/<\/?\d+\/?>/.test(element.textContent)) return false; // somebody's text that looks like an element of a key
    const texts = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!texts.length || !element.firstElementChild || element.childNodes.length > 40) return false;
    const inner = [];
    const said = find(keyOf(element, inner).trim().replace(/\s+/g, " "));
    if (said === undefined) return false;
    const open = [[element, []]];
    for (const part of said.split(/(<\/?\d+\/?>)/)) {
      const [, closes, n, empty] = /^<(\/?)(\d+)(\/?)>$/.exec(part) ?? [];
      if (closes) fill(...open.pop()); else if (part) open.at(-1)[1].push(inner[n] ?? part);
      if (n && !closes && !empty) open.push([inner[n], []]);
    }
    fill(...open.pop());
    return true;
  }

  // Translates a text or an attribute.
  function replace(node) {
    const said = translated(node.nodeValue);
    if (said !== node.nodeValue) node.nodeValue = said;
  }

  function attributes(element) {
    for (const name of ATTRIBUTES) if (element.hasAttribute(name)) replace(element.getAttributeNode(name));
  }

  function walk(node) {
    if (node.nodeType === Node.TEXT_NODE) replace(node);
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(THEIRS)) return;
    attributes(node);
    mixed(node);
    for (const child of node.childNodes) walk(child);
  }

  const observer = new MutationObserver((records) => {
    for (const { type, target, addedNodes } of records) {
      const element = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
      if (!element || element.closest(THEIRS)) continue;
      if (type === "attributes") attributes(element);
      else if (!mixed(element)) for (const node of type === "childList" ? addedNodes : [target]) walk(node);
    }
    observer.takeRecords(); // of these translations
  });
  observer.observe(document.documentElement, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ATTRIBUTES });
  walk(document.documentElement);

  // A menu shows its choice as the value of a field, which is no text: Gradio takes its choices, and the first prompt, in this
  // language.
  for (const { props } of window.gradio_config?.components ?? []) {
    if (props.elem_id === "prompt") props.value = translated(props.value);
    for (const choice of props.choices ?? []) if (Array.isArray(choice) && choice[0] !== choice[1]) choice[0] = translated(choice[0]);
  }
};
