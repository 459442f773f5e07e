"use strict";

// How good a classifier is, drawn with the browser's own means.

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, properties, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Lines in a frame. Each line: { points, tint, dashed, title }.
function chart(parent, title, lines, xTitle, yTitle, ends) {
  const [width, height, left, bottom] = [340, 230, 58, 36];
  const all = lines.flatMap((line) => line.points);
  const range = (i) => (ends ? ends[i] : [Math.min(...all.map((p) => p[i])), Math.max(...all.map((p) => p[i]))]);
  const [[x0, x1], [y0, y1]] = [range(0), range(1)];
  const x = (v) => left + ((v - x0) / (x1 - x0 || 1)) * (width - left - 10);
  const y = (v) => height - bottom - ((v - y0) / (y1 - y0 || 1)) * (height - bottom - 12);
  const text = (at, words, anchor = "middle", turn = "") => svg("text", { x: at[0], y: at[1], "text-anchor": anchor, transform: turn, class: "tick" }, words);
  const parts = [svg("path", { d: `M${x(x0)} ${y(y1)}V${y(y0)}H${x(x1)}`, class: "axis" })];
  for (const share of [0, 0.5, 1]) {
    const [vx, vy] = [x0 + share * (x1 - x0), y0 + share * (y1 - y0)];
    parts.push(text([x(vx), height - bottom + 15], short(vx)), text([left - 5, y(vy) + 4], short(vy), "end"));
  }
  parts.push(text([(left + width) / 2, height - 4], xTitle), text([11, height / 2 - 10], yTitle, "middle", `rotate(-90 11 ${height / 2 - 10})`));
  for (const line of lines) {
    parts.push(svg("polyline", { points: line.points.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), class: `line ${line.tint}${line.dashed ? " dashed" : ""}` }));
    if (line.title) parts.push(svg("text", { x: x(line.points.at(-1)[0]), y: y(line.points.at(-1)[1]) - 6, "text-anchor": "end", class: `tick ${line.tint}` }, line.title));
  }
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, ...parts);
  parent.append(element("figure", {}, element("figcaption", {}, title), drawing));
}

function drawQuality() {
  const parent = byId("quality-charts");
  const { quality, history } = data;
  const write = () => {
    parent.replaceChildren();
    if (quality && quality.calibration.length) {
      const which = data.outputs.length === 1 ? 1 : output;
      const bins = quality.calibration[which].map((bin) => [bin[0], bin[1]]);
      chart(parent, `Calibration of ${clipped(data.classes[which])}`, [{ points: [[0, 0], [1, 1]], tint: "soft", dashed: true }, { points: bins, tint: "accent" }],
        "predicted probability", `share of ${data.counted}`, [[0, 1], [0, 1]]);
      const table = element("table", {});
      fillTable(table, ["actual", ...data.classes.map((name) => `predicted ${name}`)], quality.confusion.map((row, i) => [data.classes[i], ...row.map(String)]));
      parent.append(element("figure", {}, element("figcaption", {}, "Confusion"), element("div", { className: "scroll" }, table)));
    }
    const losses = [["loss", "training", "soft"], ["validation_loss", "validation", "accent"]].filter(([name]) => (history[name] || []).length > 1);
    if (losses.length) chart(parent, "Training", losses.map(([name, title, tint]) => ({ points: history[name].map((v, i) => [i + 1, v]), tint, title })), "epoch", "loss");
  };
  drawn.set(parent, { ready: true, draw: write });
  write();
}

function probabilities(scores) {
  const all = scores.length === 1 ? [0, scores[0]] : scores;
  const most = Math.max(...all);
  const odds = all.map((score) => Math.exp(score - most));
  const sum = odds.reduce((a, b) => a + b, 0);
  return odds.map((value) => value / sum);
}
