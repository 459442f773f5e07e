"use strict";

// The page of a model of images: images to browse, each with what its pixels do laid over it.

function bytesOf(text) {
  const raw = atob(text);
  return Uint8Array.from({ length: raw.length }, (_, i) => raw.charCodeAt(i));
}

// The picture on a canvas, as it is or in grey, with contributions in red (raises) and blue (lowers) over it.
function paint(canvas, pixels, values, strength) {
  const { width, height } = data.images;
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const drawing = context.createImageData(width, height);
  for (let i = 0; i < width * height; i += 1) {
    let own = [pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]];
    if (values) {
      const grey = 0.299 * own[0] + 0.587 * own[1] + 0.114 * own[2];
      const share = strength * Math.min(1, Math.abs(values[i]) / 100);
      own = (values[i] > 0 ? [178, 24, 43] : [33, 102, 172]).map((tint) => share * tint + (1 - share) * grey);
    }
    drawing.data.set([...own, 255], 4 * i);
  }
  context.putImageData(drawing, 0, 0);
}

// Means over neighbours up to so many pixels away: what an area does is easier to see than single pixels.
function smoothed(values, reach) {
  const { width, height } = data.images;
  if (!reach) return values;
  const blur = (from, count, other, step, jump) => {
    const found = new Float32Array(from.length);
    for (let line = 0; line < other; line += 1) {
      for (let i = 0; i < count; i += 1) {
        let sum = 0;
        for (let j = i - reach; j <= i + reach; j += 1) sum += from[line * jump + Math.min(count - 1, Math.max(0, j)) * step];
        found[line * jump + i * step] = sum / (2 * reach + 1);
      }
    }
    return found;
  };
  return blur(blur(values, width, height, 1, width), height, width, width, 1);
}

const largest = (values) => values.reduce((size, value) => Math.max(size, Math.abs(value)), 1e-9);

function drawImages() {
  if (!data.images) return;
  const { index, names, pixels, shown, values, reach, scores, predicted, actual, loss } = data.images;
  const known = actual !== null;
  const pictures = pixels.map(bytesOf);
  const overlays = values.map((own) => own.map((text) => Float32Array.from(new Int8Array(bytesOf(text).buffer))));
  const tiles = byId("tiles");
  let [chosen, which] = [-1, 0];

  const detail = () => {
    const shares = probabilities(scores[chosen]);
    const share = (c) => (data.outputs.length === 1 ? shares[1] : shares[c]);
    const best = shares.indexOf(Math.max(...shares));
    byId("image-title").textContent = `${names[chosen]}: ${data.classes[best]}, ${percent(shares[best])}`;
    byId("image-said").textContent = known ? `Actual: ${actual[chosen]}${actual[chosen] === predicted[chosen] ? "." : ", so the model is wrong."}` : "";
    paint(byId("image-plain"), pictures[chosen]);
    const values = smoothed(overlays[chosen][which], Number(byId("smooth").value));
    const most = Number(byId("smooth").value) ? largest(values) : 100;
    paint(byId("image-why"), pictures[chosen], values.map((value) => (100 * value) / most), Number(byId("strength").value) / 100);
    byId("image-legend").textContent = `Full colour is ${short((reach[chosen][which] * most) / 100)} or more for a pixel (${data.unit}).`;
    byId("image-classes").replaceChildren(...shown[chosen].map((c, place) => {
      const radio = element("input", { type: "radio", name: "image-class", checked: place === which });
      radio.addEventListener("input", () => { which = place; detail(); });
      const bar = element("span", { className: "bar up" });
      bar.style.width = `${100 * share(c)}%`;
      const said = `${data.outputs[c]}: ${percent(share(c))}, score ${short(scores[chosen][c])}`;
      return element("label", { className: "choice" }, radio, said, element("span", { className: "track" }, bar));
    }));
    for (const tile of tiles.children) tile.setAttribute("aria-pressed", String(Number(tile.dataset.place) === chosen));
  };

  const write = () => {
    const wanted = byId("find-image").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = index.map((_, i) => i).filter((i) => wanted.every((word) => `${names[i]} ${predicted[i]} ${known ? actual[i] : ""}`.toLowerCase().includes(word)));
    if (known && byId("image-order").value === "wrong") found.sort((a, b) => loss[b] - loss[a]);
    byId("image-count").textContent = `${found.length} of ${index.length} images`;
    tiles.replaceChildren(...found.map((i) => {
      const picture = element("canvas", { "aria-hidden": "true" });
      if (byId("all-why").checked) {
        const values = smoothed(overlays[i][0], Number(byId("smooth").value));
        const most = Number(byId("smooth").value) ? largest(values) : 100;
        paint(picture, pictures[i], values.map((value) => (100 * value) / most), 0.8);
      } else {
        paint(picture, pictures[i]);
      }
      const right = !known || actual[i] === predicted[i];
      const said = right ? predicted[i] : `${predicted[i]}, is ${actual[i]}`;
      const tile = element("button", { type: "button", className: right ? "tile" : "tile wrong", title: names[i] }, picture, element("span", {}, clipped(said, 24)));
      tile.dataset.place = i;
      tile.addEventListener("click", () => { [chosen, which] = [i, 0]; detail(); });
      return tile;
    }));
    if (found.length) {
      if (!found.includes(chosen)) [chosen, which] = [found[0], 0];
      detail();
    }
  };
  for (const id of ["find-image", "image-order", "all-why"]) if (byId(id)) byId(id).addEventListener("input", write);
  byId("strength").addEventListener("input", detail);
  byId("smooth").addEventListener("input", () => (byId("all-why").checked ? write() : detail()));
  write();
}

drawQuality();
drawImages();
document.documentElement.dataset.ready = "yes";
