"use strict";

// What all pages share. Names, levels, labels and texts are data: they reach the page as text nodes.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
let output = 0;
let picked = false; // whether it was the reader who chose it

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const literal = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
// Cut in the middle: names often begin alike.
const clipped = (text, most = 28) => (text.length > most ? `${text.slice(0, Math.ceil(most / 2))}…${text.slice(1 - Math.floor(most / 2))}` : text);
const label = (text, most) => literal(clipped(String(text), most));

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "missing";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return Number(value.toPrecision(4)).toString();
}
const signed = (value) => (value < 0 ? "−" : "+") + short(Math.abs(value));
const percent = (value) => `${(100 * value).toFixed(1)} %`;

const drawn = new Map(); // element -> the function that draws it, again when the theme or the output changes

function redraw() {
  for (const own of drawn.values()) if (own.ready) own.draw();
}

function fillTable(table, titles, rows, caption) {
  const head = element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
  const parts = [element("thead", {}, head), element("tbody", {}, ...body)];
  table.replaceChildren(...(caption ? [element("caption", {}, caption)] : []), ...parts);
}

// ------------------------------------------------------------------------------------------ theme, output, printing

byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
if (byId("output")) {
  byId("output").addEventListener("input", (event) => { output = Number(event.target.value); picked = true; redraw(); });
}
window.addEventListener("beforeprint", () => {
  for (const own of drawn.values()) { own.ready = true; own.draw(); }
});
