// Labels and prediction of the shown image: their values, and their colours on the screen.

import { UNLABELLED } from "./shapes.js";
import { ValueTiles, rgba } from "./tiles.js";

// Colours of 0 to 100 %: cividis, which colour-blind eyes read as others do.
const HEAT = [[0, 32, 77], [65, 77, 107], [124, 123, 120], [188, 174, 108], [255, 234, 70]];

export class Overlay {
  constructor(view, canvases) {
    this.view = view;
    this.mode = "fill";
    this.classes = [];
    this.chosen = 0; // value of the chosen class
    this.heat = Uint32Array.from({ length: 256 }, (_, i) => heat(i / 255));
    this.labelTiles = new ValueTiles(view, this.renderLabels.bind(this), () => view.invalidate(this.labelLayer));
    this.predictionTiles = new ValueTiles(view, this.renderPrediction.bind(this), () => view.invalidate(this.predictionLayer));
    this.predictionLayer = view.addLayer(canvases.prediction, (context, box) => this.drawPrediction(context, box));
    this.labelLayer = view.addLayer(canvases.labels, (context, box) => this.labelTiles.draw(context, box));
    this.labelCanvas = canvases.labels;
    this.thickness = 1;
    this.setSize(0, 0);
  }

  setSize(height, width) {
    this.height = height;
    this.width = width;
    this.labels = new Uint8Array(height * width).fill(UNLABELLED);
    this.labelTiles.setSize(height, width);
    this.clearPrediction();
    this.view.redraw();
  }

  setClasses(classes) {
    this.classes = classes;
    this.colours = new Uint32Array(256); // opaque, for outlines
    this.insides = new Uint32Array(256); // of strokes: what is below shines through
    this.fills = new Uint32Array(256); // of the prediction: the background must not veil the image
    classes.forEach((entry, i) => {
      this.colours[entry.value] = rgba(entry.colour);
      this.insides[entry.value] = rgba(entry.colour, 170);
      this.fills[entry.value] = rgba(entry.colour, i ? 255 : 110);
    });
    this.labelTiles.markAll();
    this.predictionTiles.markAll();
    this.view.redraw();
  }

  setMode(mode) {
    this.mode = mode;
    this.predictionTiles.markAll();
    this.view.invalidate(this.predictionLayer);
  }

  choose(value) {
    this.chosen = value;
    if (this.mode === "probability") this.setMode(this.mode);
  }

  // labels

  /** New values of a box, row by row. */
  setLabels([row, column], [height, width], values) {
    for (let i = 0; i < height; i++) {
      this.labels.set(values.subarray(i * width, (i + 1) * width), (row + i) * this.width + column);
    }
    this.labelsChanged([row, column, row + height, column + width]);
  }

  paint(spans, value, box) {
    for (let i = 0; i < spans.length; i += 3) {
      const start = spans[i] * this.width;
      this.labels.fill(value, start + spans[i + 1], start + spans[i + 2]);
    }
    this.labelsChanged(box);
  }

  labelsChanged([top, left, bottom, right]) {
    // The rim of strokes beside the box may change too.
    const box = [Math.max(0, top - 1), Math.max(0, left - 1), Math.min(this.height, bottom + 1), Math.min(this.width, right + 1)];
    this.labelTiles.mark(box);
    this.view.invalidate(this.labelLayer, box);
  }

  renderLabels(pixels, top, left, height, width) {
    const { labels, colours, insides } = this;
    for (let i = 0, k = 0; i < height; i++) {
      const start = (top + i) * this.width + left;
      const up = top + i > 0 ? -this.width : 0;
      const down = top + i + 1 < this.height ? this.width : 0;
      for (let j = 0; j < width; j++, k++) {
        const at = start + j;
        const label = labels[at];
        if (label === UNLABELLED) continue;
        const isInside = labels[at + up] === label && labels[at + down] === label
          && (left + j === 0 || labels[at - 1] === label) && (left + j + 1 === this.width || labels[at + 1] === label);
        pixels[k] = isInside ? insides[label] : colours[label];
      }
    }
  }

  // prediction

  clearPrediction() {
    this.prediction = null;
    this.predictionTiles.setSize(this.height, this.width);
    this.view.invalidate(this.predictionLayer);
  }

  /** A block of a prediction; returns whether the whole image is now of this generation and final. */
  setPrediction(header, payload) {
    const size = this.height * this.width;
    let shown = this.prediction;
    if (!shown || String(shown.classes) !== String(header.classes)) {
      shown = this.prediction = {
        generation: -1,
        classes: header.classes, // mask value of each plane
        ids: new Uint8Array(size).fill(UNLABELLED),
        doubt: new Uint8Array(size),
        planes: header.classes.map(() => new Uint8Array(size)),
      };
    }
    if (header.generation < shown.generation) return false;
    if (header.generation > shown.generation) Object.assign(shown, { generation: header.generation, done: 0 });
    const n = header.shape[0] * header.shape[1];
    [shown.ids, shown.doubt, ...shown.planes].forEach((plane, i) => {
      this.spread(plane, payload.subarray(i * n, (i + 1) * n), header);
    });
    const [row, column] = header.corner;
    const bottom = Math.min(this.height, row + header.shape[0] * header.stride);
    const right = Math.min(this.width, column + header.shape[1] * header.stride);
    const rim = this.thickness; // outlines above and left of the block may change too
    const box = [Math.max(0, row - rim), Math.max(0, column - rim), bottom, right];
    this.predictionTiles.mark(box);
    this.view.invalidate(this.predictionLayer, box);
    if (header.stride === 1) shown.done += n;
    return shown.done >= size;
  }

  /** Write values that stand for stride x stride pixels each. */
  spread(plane, values, { corner: [row, column], shape: [height, width], stride }) {
    const length = Math.min(width * stride, this.width - column);
    const line = new Uint8Array(width * stride);
    for (let i = 0; i < height; i++) {
      let source = values.subarray(i * width, (i + 1) * width);
      if (stride > 1) {
        for (let j = 0; j < width; j++) line.fill(source[j], j * stride, (j + 1) * stride);
        source = line;
      }
      const last = Math.min(this.height, row + (i + 1) * stride);
      for (let r = row + i * stride; r < last; r++) plane.set(source.subarray(0, length), r * this.width + column);
    }
  }

  drawPrediction(context, box) {
    if (this.mode === "off" || !this.prediction) return;
    // Outlines keep their width on the screen: twice as thick in the image when it is seen half as large.
    const thickness = 2 ** Math.max(0, Math.round(Math.log2(1.5 / (this.view.scale * this.view.ratio))));
    if (this.mode === "outlines" && thickness !== this.thickness) {
      this.thickness = thickness;
      this.predictionTiles.markAll();
    }
    this.predictionTiles.draw(context, box);
  }

  renderPrediction(pixels, top, left, height, width) {
    if (this.mode === "outlines") {
      this.renderOutlines(pixels, top, left, height, width);
      return;
    }
    const { ids, doubt, planes, classes } = this.prediction;
    const chosen = planes[classes.indexOf(this.chosen)];
    const shown = { fill: ids, uncertainty: doubt, probability: chosen }[this.mode];
    const colours = this.mode === "fill" ? this.fills : this.heat;
    for (let i = 0, k = 0; i < height; i++) {
      const start = (top + i) * this.width + left;
      for (let j = start; j < start + width; j++, k++) {
        if (shown && ids[j] !== UNLABELLED) pixels[k] = colours[shown[j]];
      }
    }
  }

  renderOutlines(pixels, top, left, height, width) {
    const { ids } = this.prediction;
    const reach = this.thickness;
    for (let i = 0, k = 0; i < height; i++) {
      const down = top + i + reach < this.height ? reach * this.width : 0;
      for (let j = 0; j < width; j++, k++) {
        const at = (top + i) * this.width + left + j;
        const side = left + j + reach < this.width ? reach : 0;
        const [a, b, c] = [ids[at], ids[at + side], ids[at + down]];
        // The colour of the class with the higher value: background comes first.
        if (a !== b || a !== c) pixels[k] = this.colours[Math.max(a, b, c)] || pixels[k];
      }
    }
  }

  /** What is at a pixel, in words. */
  describe(row, column) {
    if (row < 0 || column < 0 || row >= this.height || column >= this.width) return "";
    const at = row * this.width + column;
    const name = (value) => {
      const rank = this.classes.findIndex((entry) => entry.value === value);
      return rank < 0 ? "none" : `${rank + 1} ${this.classes[rank].name}`;
    };
    const words = [`row ${row}, column ${column}`, `label: ${name(this.labels[at])}`];
    const id = this.prediction?.ids[at] ?? UNLABELLED;
    if (id !== UNLABELLED) {
      // the threshold of a class may lie where another one is as probable: no number then
      const [own, most] = [this.prediction.planes[this.prediction.classes.indexOf(id)]?.[at], Math.max(...this.prediction.planes.map((plane) => plane[at]))];
      words.push(`prediction: ${name(id)}${own === most ? ` (${Math.round(own / 2.55)} %)` : ""}`);
    }
    return words.join(" · ");
  }
}

function heat(share) {
  const place = share * (HEAT.length - 1);
  const i = Math.min(HEAT.length - 2, Math.floor(place));
  const [r, g, b] = HEAT[i].map((from, c) => Math.round(from + (HEAT[i + 1][c] - from) * (place - i)));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
