"use strict";

// The page of a model of tables. Plotly gets names with its markup switched off.

const dateOf = (days) => {
  const date = new Date(Math.round(days * 86400e3));
  if (Number.isNaN(date.getTime())) return String(days);
  return Number.isInteger(days) ? date.toISOString().slice(0, 10) : date.toISOString().slice(0, 16).replace("T", " ");
};
// A prediction, in as many digits as tell changes of a thousandth of the spread of the target.
const predicted = (value, c = output) => (typeof value !== "number" || data.task !== "regression" || !value ? short(value)
  : String(Number(value.toPrecision(Math.min(15, Math.max(4, 3 + Math.ceil(Math.log10(Math.abs(value) / data.spread[c]))))))));
// The score to look at of a row: of several classes that of the most probable one, until one is picked.
const outputOf = (scores) => (data.task === "regression" || scores.length === 1 || picked ? output : scores.indexOf(Math.max(...scores)));
const unitOf = (c) => (data.outputs.length > 1 ? `${data.outputs[c]}: ${data.unit}` : data.unit);
const show = (value, feature) => (value !== null && feature.kind === "date" ? dateOf(value) : short(value));

// ------------------------------------------------------------------------------------------ drawing

function layout(options) {
  const axis = { gridcolor: color("grid"), linecolor: color("line"), zerolinecolor: color("line"), automargin: true, exponentformat: "power" };
  const { xaxis = {}, yaxis = {}, ...rest } = options;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, height: 240,
    font: { color: color("text"), family: "system-ui, sans-serif", size: 12 }, margin: { l: 50, r: 12, t: 8, b: 40 },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

function draw(where, traces, options) {
  Plotly.react(where, traces, layout(options), { displaylogo: false, displayModeBar: false, responsive: true });
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting || !drawn.has(entry.target)) continue;
    seen.unobserve(entry.target);
    drawn.get(entry.target).ready = true;
    drawn.get(entry.target).draw();
  }
}, { rootMargin: "300px" });

function figure(parent, title, description, drawing) {
  const plot = element("div", { className: "plot", role: "img", "aria-label": description });
  parent.append(title ? element("figure", {}, element("figcaption", {}, title), plot) : plot);
  drawn.set(plot, { ready: false, draw: () => drawing(plot) });
  seen.observe(plot);
  return plot;
}

// ------------------------------------------------------------------------------------------ how good it is

function drawQuality() {
  const parent = byId("quality-charts");
  const { quality, history } = data;
  if (quality && quality.calibration.length) {
    const which = () => (data.outputs.length === 1 ? 1 : output);
    figure(parent, "Calibration", "Predicted probability against the share of rows", (plot) => {
      const bins = quality.calibration[which()];
      draw(plot, [
        { x: [0, 1], y: [0, 1], mode: "lines", line: { color: color("soft"), dash: "dot", width: 1 }, hoverinfo: "skip" },
        { x: bins.map((b) => b[0]), y: bins.map((b) => b[1]), mode: "lines+markers", line: { color: color("accent") },
          customdata: bins.map((b) => b[2]), hovertemplate: "predicted %{x:.3f}<br>found %{y:.3f}<br>%{customdata} rows<extra></extra>" },
      ], {
        xaxis: { title: { text: `predicted probability of ${label(data.classes[which()])}` }, range: [-0.02, 1.02] },
        yaxis: { title: { text: "share of rows" }, range: [-0.02, 1.02] },
      });
    });
    figure(parent, "Confusion", "Actual classes against predicted classes", (plot) => {
      const shares = quality.confusion.map((row) => {
        const total = row.reduce((sum, v) => sum + v, 0) || 1;
        return row.map((v) => v / total);
      });
      const few = data.classes.length <= 12;
      const dark = (share) => (share > 0.5 ? color("sheet") : color("text"));
      const places = data.classes.map((_, i) => i);
      draw(plot, [{
        type: "heatmap", x: places, y: places, z: shares, zmin: 0, zmax: 1, showscale: false, customdata: quality.confusion,
        colorscale: [[0, color("sheet")], [1, color("accent")]],
        hovertemplate: "%{customdata} rows, %{z:.1%}<extra></extra>",
      }], {
        annotations: few ? quality.confusion.flatMap((row, i) => row.map((v, j) => (
          { x: j, y: i, text: String(v), showarrow: false, font: { color: dark(shares[i][j]) } }))) : [],
        xaxis: { title: { text: "predicted" }, ...fewTicks(data.classes, 12) },
        yaxis: { title: { text: "actual" }, autorange: "reversed", ...fewTicks(data.classes, 12) },
      });
    });
  }
  if (quality && quality.points.length) {
    const points = () => quality.points.map((row) => row[output]);
    figure(parent, "Predicted and actual", "Predicted against actual values", (plot) => {
      const own = points();
      const ends = [Math.min(...own.flat()), Math.max(...own.flat())];
      draw(plot, [
        { x: own.map((p) => p[0]), y: own.map((p) => p[1]), mode: "markers", marker: { color: color("accent"), size: 4, opacity: 0.5 },
          hovertemplate: "predicted %{x:.9~g}<br>actual %{y:.9~g}<extra></extra>" },
        { x: ends, y: ends, mode: "lines", line: { color: color("soft"), dash: "dot", width: 1 }, hoverinfo: "skip" },
      ], { xaxis: { title: { text: "predicted" }, nticks: 4, exponentformat: "none" }, yaxis: { title: { text: "actual" }, exponentformat: "none" } });
    });
    figure(parent, "Residuals", "Actual minus predicted values, against the predicted", (plot) => {
      const own = points();
      draw(plot, [{
        x: own.map((p) => p[0]), y: own.map((p) => p[1] - p[0]), mode: "markers",
        marker: { color: color("accent"), size: 4, opacity: 0.5 },
        hovertemplate: "predicted %{x:.4g}<br>residual %{y:.4g}<extra></extra>",
      }], { xaxis: { title: { text: "predicted" }, nticks: 4, exponentformat: "none" }, yaxis: { title: { text: "actual − predicted" } } });
    });
  }
  const losses = [["loss", "training", "soft"], ["validation_loss", "validation", "accent"]].filter(([name]) => (history[name] || []).length > 1);
  if (losses.length) {
    figure(parent, "Training", "Loss by epoch", (plot) => draw(plot, losses.map(([name, title, tint]) => (
      { x: history[name].map((_, i) => i + 1), y: history[name], name: title, mode: "lines", line: { color: color(tint) } })),
    { showlegend: true, legend: { x: 1, xanchor: "right", y: 1 }, xaxis: { title: { text: "epoch" } }, yaxis: { title: { text: "loss" } } }));
  }
}

// ------------------------------------------------------------------------------------------ what matters

function drawImportances() {
  const { names, values } = data.importances;
  const order = () => names.map((_, j) => j).sort((a, b) => values[output][b] - values[output][a]);
  figure(byId("importances-chart"), "", "Importance of the features", (plot) => {
    const top = order().slice(0, 25).reverse();
    draw(plot, [{
      type: "bar", orientation: "h", y: top.map((_, i) => i), x: top.map((j) => values[output][j]), marker: { color: color("accent") },
      customdata: top.map((j) => literal(names[j])), hovertemplate: "%{customdata}: %{x:.4g}<extra></extra>",
    }], { height: 60 + 22 * top.length, bargap: 0.3, yaxis: { tickvals: top.map((_, i) => i), ticktext: top.map((j) => label(names[j])), showgrid: false } });
    fillTable(byId("importances-table"), ["feature", "importance"], order().map((j) => [names[j], short(values[output][j])]));
  });
}

// ------------------------------------------------------------------------------------------ curves and pairs

function curveTraces(curve) {
  const values = curve.values[output];
  const [low, high] = [curve.low[output], curve.high[output]];
  const top = Math.max(...curve.counts, 1);
  const banded = data.band;
  const traces = [];
  if (curve.categorical) {
    const places = curve.grid.map((_, i) => i);
    traces.push({ type: "bar", x: places, y: curve.counts.map((c) => c / top), yaxis: "y2", marker: { color: color("density") }, hoverinfo: "skip" });
    traces.push({
      x: places, y: values, mode: "markers", marker: { color: color("accent"), size: 9 },
      error_y: banded ? { type: "data", symmetric: false, array: values.map((v, i) => high[i] - v), arrayminus: values.map((v, i) => v - low[i]), color: color("accent") } : undefined,
      customdata: curve.grid.map(literal), hovertemplate: "%{customdata}: %{y:+.4g}<extra></extra>",
    });
    return traces;
  }
  const show = curve.date ? dateOf : (x) => x;
  const middles = curve.counts.map((_, i) => show((curve.edges[i] + curve.edges[i + 1]) / 2));
  const grid = curve.grid.map(show);
  traces.push({ type: "bar", x: middles, y: curve.counts.map((c) => c / top), yaxis: "y2", marker: { color: color("density") }, hoverinfo: "skip" });
  if (banded) {
    traces.push({ x: grid, y: low, mode: "lines", line: { width: 0 }, hoverinfo: "skip" });
    traces.push({ x: grid, y: high, mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: color("band"), hoverinfo: "skip" });
  }
  traces.push({ x: grid, y: values, mode: "lines", line: { color: color("accent"), width: 2 }, hovertemplate: "%{x}: %{y:+.4g}<extra></extra>" });
  if (curve.missing[output] !== null) {
    const at = curve.missing[output];
    traces.push({ x: [grid[0], grid[grid.length - 1]], y: [at, at], mode: "lines", line: { color: color("down"), dash: "dash", width: 1.5 }, hovertemplate: "missing: %{y:+.4g}<extra></extra>" });
  }
  return traces;
}

function curveLayout(curve) {
  const options = {
    yaxis: { zeroline: true }, bargap: curve.categorical ? 0.35 : 0,
    yaxis2: { overlaying: "y", side: "right", range: [0, 4], visible: false, fixedrange: true },
    xaxis: curve.categorical ? fewTicks(curve.grid, 12) : {},
  };
  if (!curve.categorical && curve.missing[output] !== null) {
    options.annotations = [{ xref: "paper", x: 1, xanchor: "right", y: curve.missing[output], yanchor: "bottom", text: "missing", showarrow: false, font: { color: color("down") } }];
  }
  return options;
}

function drawCurves() {
  const parent = byId("curve-charts");
  for (const curve of data.curves) {
    figure(parent, curve.name, `What ${curve.name} does to the score`, (plot) => draw(plot, curveTraces(curve), curveLayout(curve)));
  }
  byId("find-curve").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    [...parent.children].forEach((own, i) => { own.hidden = !data.curves[i].name.toLowerCase().includes(wanted); });
  });
}

// Names without what they all begin or end with, where they are too long to be shown whole.
function apart(names, most) {
  if (names.length < 2 || names.every((name) => name.length <= most)) return names.map((name) => clipped(name, most));
  const common = (texts) => { let n = 0; while (n < Math.min(...texts.map((t) => t.length)) - 1 && texts.every((t) => t[n] === texts[0][n])) n += 1; return n; };
  const start = common(names);
  const end = common(names.map((name) => [...name.slice(start)].reverse().join("")));
  const cut = start > 3 ? names.map((name) => `…${name.slice(start)}`) : names;
  return cut.map((name) => clipped(end > 3 ? `${name.slice(0, name.length - end)}…` : name, most));
}

// Ticks by place, so many of them at most and the last.
function fewTicks(values, most = 8) {
  const every = Math.ceil(values.length / most);
  const places = values.map((_, i) => i).filter((i) => i === values.length - 1 || (i % every === 0 && i + every / 2 < values.length));
  const most_letters = values.length > 3 ? 12 : 20;
  return { tickvals: places, ticktext: apart(places.map((i) => short(values[i])), most_letters).map(literal) };
}

function drawPairs() {
  const parent = byId("pair-charts");
  if (!parent) return;
  for (const pair of data.surfaces) {
    figure(parent, `${pair.names[0]} × ${pair.names[1]}`, `What ${pair.names[0]} and ${pair.names[1]} do together`, (plot) => {
      const z = pair.values[output];
      const most = Math.max(...z.flat().map(Math.abs), 1e-12);
      const axis = (values, name) => (typeof values[0] === "number" && values.every((v) => v !== null)
        ? [values, { title: { text: label(name) } }]
        : [values.map((_, i) => i), { title: { text: label(name) }, ...fewTicks(values) }]);
      const [y, yaxis] = axis(pair.first, pair.names[0]);
      const [x, xaxis] = axis(pair.second, pair.names[1]);
      draw(plot, [{
        type: "heatmap", x, y, z, zmin: -most, zmax: most, colorscale: [[0, color("down")], [0.5, color("sheet")], [1, color("up")]],
        colorbar: { thickness: 10, outlinewidth: 0 }, hovertemplate: "%{y}, %{x}: %{z:+.4g}<extra></extra>",
      }], { xaxis, yaxis, height: 280 });
    });
  }
}

// ------------------------------------------------------------------------------------------ why, row by row

const SHOWN = 12;

function waterfall(plot, names, values, base, score, unit) {
  const order = names.map((_, j) => j).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
  const steps = order.slice(0, SHOWN).map((j) => [label(names[j], 36), values[j]]);
  const rest = order.slice(SHOWN);
  if (rest.length) steps.push([`${rest.length} others`, rest.reduce((sum, j) => sum + values[j], 0)]);
  steps.reverse();
  let from = base;
  const starts = [...steps].reverse().map(([, value]) => { const start = from; from += value; return start; }).reverse();
  const ends = [base, score];
  const reached = [...ends, ...starts, ...steps.map(([, v], i) => starts[i] + v)];
  const [least, most] = [Math.min(...reached), Math.max(...reached)];
  const room = 0.25 * (most - least || 1);
  draw(plot, [{
    type: "bar", orientation: "h", y: steps.map((_, i) => i), x: steps.map(([, v]) => v), base: starts,
    marker: { color: steps.map(([, v]) => color(v < 0 ? "down" : "up")) },
    text: steps.map(([, v]) => signed(v)), textposition: "outside", cliponaxis: false, hovertemplate: "%{text}<extra></extra>",
  }], {
    height: 70 + 24 * steps.length, bargap: 0.25,
    xaxis: { title: { text: label(unit, 60) }, nticks: 5, exponentformat: "none", range: [least - room, most + room] },
    yaxis: { tickvals: steps.map((_, i) => i), ticktext: steps.map(([name]) => name), showgrid: false },
    shapes: ends.map((x, i) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color: color(i ? "text" : "soft"), width: 1, dash: i ? "solid" : "dot" } })),
  });
}

function answerOf(scores) {
  if (data.task === "regression") return { text: predicted(scores[output]), detail: data.target ? `predicted ${data.target}` : "prediction" };
  const all = scores.length === 1 ? [0, scores[0]] : scores;
  const top = Math.max(...all);
  const odds = all.map((s) => Math.exp(s - top));
  const total = odds.reduce((sum, v) => sum + v, 0);
  const which = scores.length === 1 ? 1 : outputOf(scores);
  const best = odds.indexOf(Math.max(...odds));
  return {
    text: percent(odds[which] / total), probabilities: odds.map((v) => v / total),
    detail: `probability of ${data.classes[which]}${which === best ? ", the most probable class" : `; most probable: ${data.classes[best]} (${percent(odds[best] / total)})`}`,
  };
}

function drawRows() {
  const table = byId("rows-table");
  if (!table) return;
  const { rows, features } = data;
  const known = rows.actual !== null;
  const target = (part, i) => part[i][Math.min(output, part[i].length - 1)];
  const columns = [
    { title: "row", value: (i) => rows.index[i] },
    ...(known ? [{ title: "actual", level: true, value: (i) => target(rows.actual, i) }] : []),
    { title: "predicted", level: true, value: (i) => target(rows.predicted, i) },
    ...(known ? [{ title: data.task === "regression" ? "error" : "loss", value: (i) => target(rows.loss, i) }] : []),
    ...features.map((feature, j) => ({ title: feature.name, value: (i) => rows.data[i][j], feature })),
  ];
  let sorted = { column: known ? 3 : 2, down: true };
  let chosen = null;
  let visible = [];
  const titles = columns.map((column, c) => {
    const button = element("button", { type: "button" }, clipped(column.title));
    button.addEventListener("click", () => { sorted = { column: c, down: sorted.column === c ? !sorted.down : true }; list(); });
    return element("th", { scope: "col", title: column.title }, button);
  });
  const body = element("tbody");
  table.replaceChildren(element("thead", {}, element("tr", {}, ...titles)), body);

  const shown = (column, i) => (column.feature ? show(column.value(i), column.feature)
    : column.level ? predicted(column.value(i)) : short(column.value(i)));

  function matches(i, wanted) {
    const found = wanted.match(/^(.*?)\s*(<=|>=|=|<|>)\s*(.*)$/);
    const column = found && columns.find((own) => own.title.toLowerCase() === found[1].toLowerCase());
    if (column) {
      const value = column.value(i);
      const to = found[3];
      if (value === null) return found[2] === "=" && to.toLowerCase() === "missing";
      const date = column.feature && column.feature.kind === "date";
      const wantedNumber = date ? Date.parse(to) / 86400e3 : Number(to);
      const both = typeof value === "number" ? [date ? Math.floor(value) : value, wantedNumber] : [String(value).toLowerCase(), to.toLowerCase()];
      return { "=": both[0] === both[1], "<": both[0] < both[1], ">": both[0] > both[1], "<=": both[0] <= both[1], ">=": both[0] >= both[1] }[found[2]];
    }
    return columns.some((own) => shown(own, i).toLowerCase().includes(wanted.toLowerCase()));
  }

  function list() {
    const wanted = byId("find-row").value.trim();
    const { value } = columns[sorted.column];
    visible = rows.index.map((_, i) => i).filter((i) => !wanted || matches(i, wanted));
    const before = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : (a < b ? -1 : 1) * (sorted.down ? -1 : 1));
    visible.sort((a, b) => before(value(a), value(b)));
    titles.forEach((title, c) => {
      if (c === sorted.column) title.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else title.removeAttribute("aria-sort");
    });
    body.replaceChildren(...visible.map((i) => {
      const cells = columns.map((column, c) => {
        const text = shown(column, i);
        if (c > 0) return element("td", { title: text }, text);
        const button = element("button", { type: "button", "aria-label": `Why, row ${text}` }, text);
        button.addEventListener("click", () => choose(i));
        return element("td", {}, button);
      });
      const row = element("tr", { className: i === chosen ? "chosen" : "" }, ...cells);
      row.addEventListener("click", () => choose(i));
      return row;
    }));
    byId("row-count").textContent = `${visible.length} of ${rows.index.length} rows shown`;
  }

  const plot = element("div", { className: "plot", role: "img" });
  byId("row-chart").append(plot);
  function explain() {
    const i = chosen;
    const named = features.map((feature, j) => `${clipped(feature.name, 20)} = ${clipped(show(rows.data[i][j], feature), 12)}`);
    byId("row-title").textContent = `Why, row ${rows.index[i]}?`;
    const answer = answerOf(rows.scores[i]);
    byId("row-text").textContent = `${answer.text}: ${answer.detail}${known ? `; actual: ${predicted(target(rows.actual, i))}` : ""}. From the mean row (dotted) to this one (solid):`;
    plot.setAttribute("aria-label", `Contributions of the features to the score of row ${rows.index[i]}`);
    const c = outputOf(rows.scores[i]);
    waterfall(plot, named, rows.contributions[i][c], rows.base[c], rows.scores[i][c], unitOf(c));
  }
  function choose(i) {
    chosen = i;
    [...body.children].forEach((row, at) => row.classList.toggle("chosen", visible[at] === i));
    explain();
  }
  drawn.set(plot, { ready: true, draw: () => { list(); if (chosen !== null) explain(); } });
  byId("find-row").addEventListener("input", list);
  if (byId("row-try")) {
    byId("row-try").addEventListener("click", () => {
      startFrom(rows.data[chosen]);
      byId("whatif").scrollIntoView();
    });
  }
  list();
  if (visible.length) choose(visible[0]);
}

// ------------------------------------------------------------------------------------------ what if

function slope(t) {
  const [e, square] = [MODEL.epsilon ** 2, t ** 2];
  if (MODEL.pole === "smooth") return (e - square) / (square + e) ** 2;
  return square < e ? 0 : -1 / square;
}

// S_k of a ladder on the straight way from a to b: the mean of df/da_k = r'(t_1) ... r'(t_k), by the Gauss-Legendre rule;
// where a clamped ladder jumps, by secants: products of the difference quotients of r over the parts of the way.
function meanSensitivities(a, b, secants) {
  const last = a.length - 1;
  const total = a.map(() => 0);
  const tails = (u) => {
    const t = a.map((v, k) => v + u * (b[k] - v));
    for (let k = last - 1; k >= 0; k -= 1) t[k] += reciprocal(t[k + 1]);
    return t;
  };
  if (!secants) {
    data.nodes.forEach((u, i) => {
      const t = tails(u);
      let s = data.shares[i];
      total[0] += s;
      for (let k = 1; k <= last; k += 1) {
        s *= slope(t[k]);
        total[k] += s;
      }
    });
    return total;
  }
  const parts = 64;
  let here = tails(0);
  for (let part = 1; part <= parts; part += 1) {
    const there = tails(part / parts);
    let s = 1 / parts;
    total[0] += s;
    for (let k = 1; k <= last; k += 1) {
      const change = there[k] - here[k];
      const still = Math.abs(change) <= 1e-9 * (1 + Math.abs(there[k])) && here[k] < 0 === there[k] < 0;
      s *= still ? slope((here[k] + there[k]) / 2) : (reciprocal(there[k]) - reciprocal(here[k])) / change;
      total[k] += s;
    }
    here = there;
  }
  return total;
}

// What every feature adds to every score on the way from the baseline to x: the straight line in the space of the inputs
// and the curves; a curve, which reads one input, gives its difference to that input's feature.
function contributions(x, baseline, secants = false) {
  const p = x.length;
  const { owners } = data;
  const columns = MODEL.scale.map(() => data.features.map(() => 0));
  for (const member of MODEL.members) {
    const [from, to] = [ladderValues(member, baseline), ladderValues(member, x)];
    const owner = (i) => owners[i < p ? i : member.ladders[i - p].reads[0]];
    columns.forEach((own, c) => {
      member.linear[c].forEach((w, i) => { own[owner(i)] += w * (to[i] - from[i]); });
    });
    member.ladders.forEach((ladder, l) => {
      if (ladder.reads.length === 1) {
        columns.forEach((own, c) => { own[owner(ladder.reads[0])] += member.head[c][l] * (to[p + l] - from[p + l]); });
        return;
      }
      const means = meanSensitivities(denominators(ladder, from), denominators(ladder, to), secants);
      ladder.reads.forEach((i, place) => {
        const change = (to[i] - from[i]) * ladder.rungs.reduce((sum, [, weights], k) => sum + weights[place] * means[k], 0);
        columns.forEach((own, c) => { own[owner(i)] += member.head[c][l] * change; });
      });
    });
  }
  const found = columns.map((own, c) => own.map((v) => (v * MODEL.scale[c]) / MODEL.members.length));
  if (secants) return found;
  const [from, to] = [modelScores(baseline), modelScores(x)];
  const whole = found.every((own, c) => Math.abs(own.reduce((sum, v) => sum + v, 0) - (to[c] - from[c])) <= 1e-4 * MODEL.scale[c]);
  return whole ? found : contributions(x, baseline, true);
}

let startFrom = () => {};

function drawWhatIf() {
  const parent = byId("features");
  if (!parent) return;
  const { features } = data;
  const row = Object.create(null); // so that a column may be called __proto__
  const base = modelScores(data.baseline);
  const plot = element("div", { className: "plot", role: "img", "aria-label": "Contributions of the features to the score" });
  byId("answer-chart").append(plot);

  function answer() {
    const inputs = modelInputs(row);
    const scores = modelScores(inputs);
    const own = contributions(inputs, data.baseline);
    const { text, detail, probabilities } = answerOf(scores);
    window.whatIf = { scores, contributions: own, probabilities: probabilities || null, base };
    const c = outputOf(scores);
    const said = data.task === "regression" ? detail : `${detail}; score ${short(scores[c])} (${data.unit})`;
    byId("answer").replaceChildren(element("div", { className: "big" }, text), element("div", { className: "note" }, said));
    const named = features.map((feature) => `${clipped(feature.name, 20)} = ${clipped(show(row[feature.name], feature), 12)}`);
    waterfall(plot, named, own[c], base[c], scores[c], unitOf(c));
  }
  let waiting = false;
  function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; answer(); });
  }

  const setters = features.map((feature, j) => {
    const title = element("label", { className: "title", htmlFor: `feature-${j}` }, feature.name);
    const box = element("div", { className: "feature" }, title);
    let set;
    if (feature.kind === "category") {
      const choice = element("select", { id: `feature-${j}` }, ...feature.levels.map((level, i) => element("option", { value: i }, level === null ? (feature.levels.includes("missing") ? "missing'" : "missing") : level)));
      const strange = element("option", { value: -1, hidden: true });
      choice.append(strange);
      let given = null; // a value that training did not see
      choice.addEventListener("input", () => {
        row[feature.name] = choice.selectedIndex < feature.levels.length ? feature.levels[choice.selectedIndex] : given;
        soon();
      });
      set = (value) => {
        const asked = value === undefined ? null : value;
        const place = feature.levels.indexOf(asked);
        strange.hidden = place >= 0;
        if (place < 0) {
          given = asked;
          strange.textContent = `${asked === null ? "missing" : asked} (not seen in training)`;
        }
        choice.selectedIndex = place < 0 ? feature.levels.length : place;
        row[feature.name] = asked;
      };
      box.append(choice);
    } else {
      const slider = element("input", { type: "range", id: `feature-${j}`, min: feature.low, max: feature.high, step: feature.step });
      const timed = feature.kind === "date" && feature.step !== 1;
      const kind = feature.kind === "date" ? (timed ? "datetime-local" : "date") : "number";
      const number = element("input", { type: kind, step: "any", "aria-label": `${feature.name}, value` });
      const gap = feature.missing ? element("input", { type: "checkbox", id: `feature-${j}-missing` }) : null;
      const day = (value) => new Date(Math.round(value * 86400e3)).toISOString().slice(0, timed ? 16 : 10);
      const write = (value) => { number.value = feature.kind === "date" ? day(value) : Number(value.toPrecision(6)); slider.setAttribute("aria-valuetext", number.value); };
      const change = (value) => { row[feature.name] = value; if (gap) gap.checked = false; soon(); };
      slider.addEventListener("input", () => { write(Number(slider.value)); change(Number(slider.value)); });
      number.addEventListener("input", () => {
        const value = feature.kind === "date" ? Date.parse(timed ? `${number.value}Z` : number.value) / 86400e3 : Number(number.value);
        if (number.value === "" || !Number.isFinite(value)) return;
        slider.value = value;
        change(value);
      });
      box.append(slider, number);
      if (gap) {
        gap.addEventListener("input", () => { row[feature.name] = gap.checked ? null : Number(slider.value); soon(); });
        box.append(element("label", { className: "gap" }, gap, " missing"));
      }
      set = (value) => {
        const absent = value === null || value === undefined;
        if (gap) gap.checked = absent;
        const shown = absent ? feature.start : value;
        slider.value = shown;
        write(shown);
        row[feature.name] = absent ? null : shown;
        if (absent) number.value = "";
      };
    }
    parent.append(box);
    return set;
  });

  startFrom = (values) => { setters.forEach((set, j) => set(values[j])); soon(); };
  const median = () => startFrom(features.map((feature) => feature.start));
  byId("reset").addEventListener("click", median);
  byId("find-feature").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    [...parent.children].forEach((own, j) => { own.hidden = !features[j].name.toLowerCase().includes(wanted); own.style.display = own.hidden ? "none" : ""; });
  });
  drawn.set(plot, { ready: true, draw: answer });
  median();
}

// ------------------------------------------------------------------------------------------ the formula

function drawFormula() {
  const where = byId("formula-text");
  if (!where) return;
  const { terms, center } = data.series;
  const factor = ([name, power]) => {
    const dated = data.features.some((feature) => feature.name === name && feature.kind === "date");
    const at = center[name];
    const parts = at === null ? [name] : dated ? ["(", element("i", {}, name), ` − ${dateOf(Math.round(at))}`, ")"] : ["(", element("i", {}, name), at < 0 ? ` + ${short(-at)}` : ` − ${short(at)}`, ")"];
    return power > 1 ? [...parts, element("sup", {}, String(power))] : parts;
  };
  const write = () => {
    const parts = ["score ≈ "];
    terms.slice(0, 16).forEach((term, i) => {
      const value = term.coefficients[output];
      parts.push(i === 0 ? short(value) : ` ${value < 0 ? "−" : "+"} ${short(Math.abs(value))} `);
      term.factors.forEach((own) => parts.push(...factor(own), " "));
    });
    if (terms.length > 16) parts.push(`+ ${terms.length - 16} smaller terms`);
    where.replaceChildren(...parts);
    fillTable(byId("formula-table"), ["term", "coefficient"], terms.map((term) => [
      term.factors.map(([name, power]) => (power > 1 ? `${name}^${power}` : name)).join(" × ") || "1", short(term.coefficients[output])]));
  };
  drawn.set(where, { ready: true, draw: write });
  write();
}

// ------------------------------------------------------------------------------------------ all of it

drawQuality();
drawImportances();
drawCurves();
drawPairs();
drawWhatIf();
drawRows();
drawFormula();
document.documentElement.dataset.ready = "yes";
