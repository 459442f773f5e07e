"use strict";

// The page of a model of texts: words, a box to type in, and texts to browse. It draws with the browser's own means.

// ------------------------------------------------------------------------------------------ words

function drawWords() {
  const { names, pair, stop, importances, effects, counts } = data.words;
  const write = () => {
    const wanted = byId("find-word").value.toLowerCase();
    const kind = byId("word-kind").value;
    const without = byId("stop-words").checked;
    const found = names.map((_, j) => j).filter((j) => (kind === "all" || (kind === "pairs") === pair[j]) && !(without && stop[j]) && names[j].includes(wanted));
    found.sort((a, b) => importances[output][b] - importances[output][a]);
    const shown = found.slice(0, 100);
    const most = Math.max(...shown.map((j) => importances[output][j]), 1e-12);
    fillTable(byId("words-table"), ["word", "", "importance", "adds", "texts"], shown.map((j) => {
      const up = effects[output][j] > 0;
      const bar = element("span", { className: `bar ${up ? "up" : "down"}` });
      bar.style.width = `${50 * importances[output][j] / most}%`;
      return [names[j], element("span", { className: `track ${up ? "right" : "left"}` }, bar), short(importances[output][j]), signed(effects[output][j]), String(counts[j])];
    }));
  };
  for (const id of ["find-word", "word-kind", "stop-words"]) byId(id).addEventListener("input", write);
  drawn.set(byId("words-table"), { ready: true, draw: write });
  write();
}

// ------------------------------------------------------------------------------------------ a text with its words coloured

function shade(where, pieces) {
  const most = pieces.reduce((size, [, value]) => Math.max(size, Math.abs(value || 0)), 1e-9);
  where.replaceChildren();
  for (const [text, value] of pieces) {
    if (value === null) {
      where.append(text);
      continue;
    }
    const own = element("span", { className: value > 0 ? "up" : "down", title: signed(value) }, text);
    own.style.setProperty("--strength", `${Math.round(75 * Math.min(1, Math.abs(value) / most))}%`);
    where.append(own);
  }
}

function strongest(where, pieces, base) {
  const total = new Map();
  for (const [text, value] of pieces) if (value !== null) total.set(text.toLowerCase(), (total.get(text.toLowerCase()) || 0) + value);
  const rows = [...total].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const rest = rows.slice(8).reduce((sum, row) => sum + row[1], 0);
  const table = element("table", {});
  fillTable(table, ["word", "adds"], [["an empty text", signed(base)], ...rows.slice(0, 8).map(([word, value]) => [word, signed(value)]), ...(rows.length > 8 ? [[`${rows.length - 8} others`, signed(rest)]] : [])]);
  where.replaceChildren(table);
}

// ------------------------------------------------------------------------------------------ texts

function drawTexts() {
  const table = byId("texts-table");
  if (!table) return;
  const { index, texts, pieces, scores, base, predicted, actual, loss } = data.texts;
  const known = actual !== null;
  const titles = ["row", "predicted", ...(known ? ["actual", "log-loss"] : []), "score", "text"];
  let [sorted, rising, chosen] = [known ? 3 : 0, !known, -1];
  const value = (i, column) => [index[i], predicted[i], ...(known ? [actual[i], loss[i]] : []), scores[i][output], texts[i]][column];
  const pieced = (i) => pieces[i].map(([begin, end, own]) => [texts[i].slice(begin, end), own === null ? null : own[output]]);
  const choose = (i) => {
    chosen = i;
    const shares = probabilities(scores[i]);
    const best = shares.indexOf(Math.max(...shares));
    byId("text-title").textContent = `Row ${index[i]}: ${data.classes[best]}, ${percent(shares[best])}`;
    byId("text-said").textContent = `${known ? `Actual: ${actual[i]}. ` : ""}Score ${short(scores[i][output])} (${data.unit}).`;
    shade(byId("text-words"), pieced(i));
    strongest(byId("text-strongest"), pieced(i), base[output]);
    for (const row of table.tBodies[0].rows) row.classList.toggle("chosen", Number(row.dataset.place) === i);
  };
  const write = () => {
    const wanted = byId("find-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = index.map((_, i) => i).filter((i) => wanted.every((word) => `${texts[i]} ${predicted[i]} ${known ? actual[i] : ""}`.toLowerCase().includes(word)));
    const compare = (a, b) => { const [u, v] = [value(a, sorted), value(b, sorted)]; return (typeof u === "number" ? u - v : String(u).localeCompare(String(v))) * (rising ? 1 : -1); };
    found.sort(compare);
    byId("text-count").textContent = `${found.length} of ${index.length} texts`;
    const head = titles.map((title, column) => {
      const button = element("button", { type: "button" }, title);
      button.addEventListener("click", () => { rising = sorted === column ? !rising : column !== 3; sorted = column; write(); });
      return element("th", { scope: "col", "aria-sort": sorted === column ? (rising ? "ascending" : "descending") : "none" }, button);
    });
    const body = found.map((i) => {
      const cells = titles.map((_, column) => { const own = value(i, column); return element("td", { className: column === titles.length - 1 ? "text" : "" }, column === titles.length - 1 ? clipped(own, 60) : short(own)); });
      const row = element("tr", { tabIndex: 0, className: i === chosen ? "chosen" : "" }, ...cells);
      row.dataset.place = i;
      row.addEventListener("click", () => choose(i));
      row.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(i); } });
      return row;
    });
    table.replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
    if (found.length) choose(found.includes(chosen) ? chosen : found[0]);
  };
  byId("find-text").addEventListener("input", write);
  if (byId("text-try")) {
    byId("text-try").addEventListener("click", () => {
      byId("typed").value = texts[chosen];
      byId("typed").dispatchEvent(new Event("input"));
      byId("try").scrollIntoView();
      byId("typed").focus();
    });
  }
  drawn.set(table, { ready: true, draw: write });
  write();
}

// ------------------------------------------------------------------------------------------ the model

function decoded(text, kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  if (kind === "float16") {
    const halves = new Uint16Array(bytes.buffer);
    const found = new Float32Array(halves.length);
    for (let i = 0; i < halves.length; i += 1) {
      const [sign, power, part] = [halves[i] >> 15, (halves[i] >> 10) & 31, halves[i] & 1023];
      const size = power === 0 ? part * 2 ** -24 : (1 + part / 1024) * 2 ** (power - 15);
      found[i] = sign ? -size : size;
    }
    return found;
  }
  return new { float32: Float32Array, uint32: Uint32Array, int8: Int8Array }[kind](bytes.buffer);
}

// Kinds of characters, as the model's own tokenizer has them: ranges of code points by kind.
function kindOf(code) {
  const { starts, kinds } = data.model.characters;
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= code) low = middle;
    else high = middle - 1;
  }
  return kinds[low];
}

const [OTHER, LETTER, MARK, ALONE, APOSTROPHE, TAG] = [0, 1, 2, 3, 4, 5];

function small(letter) {
  if (letter === "’" || letter === "ʼ") return "'";
  const lowered = letter.toLowerCase();
  return [...lowered].length === 1 ? lowered : letter;
}

// Words of a text: where they begin and end, counted in characters, and how they are spelled.
function tokens(letters) {
  const kinds = letters.map((letter) => kindOf(letter.codePointAt(0)));
  const found = [];
  let place = 0;
  while (place < letters.length) {
    const kind = kinds[place];
    if (kind === TAG) {
      place = tagEnds(letters, place) + 1;
    } else if (kind === OTHER || kind === APOSTROPHE) {
      place += 1;
    } else {
      const begin = place;
      let spelled = "";
      for (;;) {
        spelled += small(letters[place]);
        place += 1;
        let next = place < letters.length ? kinds[place] : OTHER;
        if (next === APOSTROPHE && place + 1 < letters.length && kinds[place + 1] === LETTER) next = LETTER;
        if (next !== MARK && (next !== LETTER || kind === ALONE)) break;
      }
      found.push({ begin, end: place, spelled });
    }
  }
  return found;
}

function tagEnds(letters, place) {
  if (!/^[a-zA-Z/!]$/.test(letters[place + 1] || "")) return place;
  for (let i = place + 1; i < Math.min(letters.length, place + data.model.longestTag); i += 1) {
    if (letters[i] === ">") return i;
    if (letters[i] === "<") return place;
  }
  return place;
}

function makeModel() {
  const own = data.model;
  const { width, ladders, rungs, members, epsilon, smooth } = own;
  const q = data.outputs.length;
  const words = new Map(own.words.map((word, i) => [word, i]));
  const left = decoded(own.left, "uint32");
  const right = decoded(own.right, "uint32");
  const pairs = new Map();
  for (let i = 0; i < left.length; i += 1) pairs.set(left[i] * own.words.length + right[i], own.words.length + i);
  const weights = decoded(own.weights, "float32");
  const places = own.places === null ? null : new Map(Array.from(decoded(own.places, "uint32"), (feature, i) => [feature, i]));
  const embedding = decoded(own.embedding, own.kind); // of each feature that is in the page
  const scale = decoded(own.scale, "float32");
  const straight = decoded(own.straight, own.straightKind);
  const [weight, bias, head, linear, intercept] = ["weight", "bias", "head", "linear", "intercept"].map((name) => decoded(own[name], "float32"));
  const far = (t) => (smooth ? t / (t * t + epsilon * epsilon) : (t < 0 ? -1 : 1) / Math.max(Math.abs(t), epsilon));
  const slope = (t) => (smooth ? (epsilon * epsilon - t * t) / (t * t + epsilon * epsilon) ** 2 : Math.abs(t) >= epsilon ? -1 / (t * t) : 0);

  // Per member: partial denominators of all ladders at z, by rung and ladder.
  const denominators = (z, m) => {
    const a = new Float64Array(rungs * ladders);
    for (let r = 0; r < rungs * ladders; r += 1) {
      let sum = 0;
      const first = (m * rungs * ladders + r) * width;
      for (let j = 0; j < width; j += 1) sum += weight[first + j] * z[j];
      a[r] = sum;
    }
    return a;
  };

  function scoresOf(z) {
    const found = new Float64Array(q);
    for (let m = 0; m < members; m += 1) {
      const a = denominators(z, m);
      for (let l = 0; l < ladders; l += 1) {
        let t = a[(rungs - 1) * ladders + l] + bias[(m * rungs + rungs - 1) * ladders + l];
        for (let r = rungs - 2; r >= 0; r -= 1) t = a[r * ladders + l] + bias[(m * rungs + r) * ladders + l] + far(t);
        for (let c = 0; c < q; c += 1) found[c] += head[(m * q + c) * ladders + l] * t / members;
      }
      for (let c = 0; c < q; c += 1) {
        let sum = intercept[m * q + c];
        for (let j = 0; j < width; j += 1) sum += linear[(m * q + c) * width + j] * z[j];
        found[c] += sum / members;
      }
    }
    return found;
  }

  // Mean slopes of the scores by z on the way from 0 to z.
  function meanSlopes(z) {
    const found = Array.from({ length: q }, () => new Float64Array(width));
    const t = new Float64Array(rungs);
    for (let m = 0; m < members; m += 1) {
      const a = denominators(z, m);
      for (let l = 0; l < ladders; l += 1) {
        const mean = new Float64Array(rungs);
        own.nodes.forEach((node, i) => {
          for (let r = rungs - 1; r >= 0; r -= 1) {
            t[r] = node * a[r * ladders + l] + bias[(m * rungs + r) * ladders + l] + (r < rungs - 1 ? far(t[r + 1]) : 0);
          }
          let sensitivity = 1;
          for (let r = 0; r < rungs; r += 1) {
            if (r > 0) sensitivity *= slope(t[r]);
            mean[r] += own.shares[i] * sensitivity;
          }
        });
        for (let c = 0; c < q; c += 1) {
          const share = head[(m * q + c) * ladders + l] / members;
          for (let r = 0; r < rungs; r += 1) {
            const first = ((m * rungs + r) * ladders + l) * width;
            for (let j = 0; j < width; j += 1) found[c][j] += share * mean[r] * weight[first + j];
          }
        }
      }
      for (let c = 0; c < q; c += 1) for (let j = 0; j < width; j += 1) found[c][j] += linear[(m * q + c) * width + j] / members;
    }
    return found;
  }

  return (text) => {
    const letters = [...text.normalize("NFC")];
    const read = tokens(letters);
    const numbers = read.map((token) => words.get(token.spelled));
    const occurrences = []; // [feature, first token, last token]
    numbers.forEach((number, i) => {
      if (number !== undefined) occurrences.push([number, i, i]);
      if (number !== undefined && numbers[i + 1] !== undefined) {
        const pair = pairs.get(number * own.words.length + numbers[i + 1]);
        if (pair !== undefined) occurrences.push([pair, i, i + 1]);
      }
    });
    const counts = new Map();
    for (const [feature] of occurrences) counts.set(feature, (counts.get(feature) || 0) + 1);
    let norm = 0;
    for (const feature of counts.keys()) norm += weights[feature] ** 2;
    norm = Math.sqrt(norm) || 1;
    const z = new Float64Array(width);
    const linearPart = new Float64Array(q);
    const rowOf = (feature) => (places === null ? feature : places.get(feature));
    for (const feature of counts.keys()) {
      const x = weights[feature] / norm;
      const row = rowOf(feature);
      if (row === undefined) continue;
      for (let c = 0; c < q; c += 1) linearPart[c] += x * straight[row * q + c];
      for (let j = 0; j < width; j += 1) z[j] += x * scale[row] * embedding[row * width + j];
    }
    const scores = Array.from(scoresOf(z), (value, c) => value + linearPart[c]);
    const slopes = meanSlopes(z);
    const values = read.map(() => new Float64Array(q));
    for (const [feature, first, last] of occurrences) {
      const row = rowOf(feature);
      if (row === undefined) continue;
      for (let c = 0; c < q; c += 1) {
        let sum = straight[row * q + c];
        for (let j = 0; j < width; j += 1) sum += slopes[c][j] * scale[row] * embedding[row * width + j];
        const share = sum * weights[feature] / norm / counts.get(feature) / (first === last ? 1 : 2);
        values[first][c] += share;
        if (last !== first) values[last][c] += share;
      }
    }
    const pieces = [];
    let at = 0;
    read.forEach((token, i) => {
      if (token.begin > at) pieces.push([letters.slice(at, token.begin).join(""), null]);
      pieces.push([letters.slice(token.begin, token.end).join(""), Array.from(values[i])]);
      at = token.end;
    });
    if (at < letters.length) pieces.push([letters.slice(at).join(""), null]);
    return { scores, pieces };
  };
}

function drawTry() {
  const box = byId("typed");
  if (!box) return;
  const model = makeModel();
  window.scoreText = model;
  const empty = model("").scores;
  const write = () => {
    const { scores, pieces } = model(box.value);
    const shares = probabilities(scores);
    const best = shares.indexOf(Math.max(...shares));
    byId("answer").replaceChildren(
      element("div", { className: "big" }, `${data.classes[best]}, ${percent(shares[best])}`),
      element("p", { className: "note" }, `Score ${short(scores[output])} (${data.unit}).`),
    );
    const own = pieces.map(([text, value]) => [text, value === null ? null : value[output]]);
    shade(byId("typed-words"), own);
    strongest(byId("typed-strongest"), own, empty[output]);
  };
  box.value = data.start;
  box.addEventListener("input", write);
  drawn.set(box, { ready: true, draw: write });
  write();
}

drawQuality();
drawWords();
drawTry();
drawTexts();
document.documentElement.dataset.ready = "yes";
