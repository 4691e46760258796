// Tools: brush, eraser, polygon, fill. They paint at once, and hand over pieces of strokes to be sent.

import { UNLABELLED, boxOf, capsule, flood, packMask, polygon } from "./shapes.js";

const OF_OBJECTS = new Set(["accept", "delete", "merge", "split", "outline", "grow", "classify"]); // tools that correct objects
const PIECE = 250; // ms between two pieces of a stroke that are sent

export class Drawing {
  /** `send(header, payload, spans)` hands over a piece; `tell(text)` shows a hint. */
  constructor(overlay, send, tell, onPolygon) {
    Object.assign(this, { overlay, send, tell, onPolygon });
    this.tool = "brush";
    this.size = 12;
    this.value = this.background = 0;
    this.image = null;
    this.stroke = null; // the one that is being drawn: {id, value, spans, x, y, sent}
    this.path = []; // of the pointer, while an object is corrected: [x, y], ...
    this.corners = []; // of the polygon that is being drawn: x, y, x, y, ...
    this.onEnd = () => {};
  }

  /** Whether the tool is a round brush. */
  get hasSize() {
    return this.tool === "brush" || this.tool === "eraser";
  }

  get isDrawing() {
    return this.stroke !== null || this.path.length > 0;
  }

  setImage(image) {
    this.image = image;
    this.stroke = null;
    this.path = [];
    this.setCorners([]);
  }

  setTool(tool) {
    this.end();
    this.tool = tool;
    this.setCorners([]);
  }

  /** The pointer goes down at a point of the image; its right button erases. */
  begin(x, y, { erases = false } = {}) {
    if (!this.image) return;
    if (this.tool === "polygon") this.addCorner(x, y);
    else if (this.tool === "fill") this.fill(Math.floor(y), Math.floor(x));
    else if (OF_OBJECTS.has(this.tool)) {
      this.path = [[x, y]];
      this.onPolygon();
    } else {
      const value = erases || this.tool === "eraser" ? UNLABELLED : this.value;
      this.stroke = { id: newId(), value, spans: [], x, y, sent: performance.now() };
      this.move([[x, y]]);
    }
  }

  /** The pointer has moved along these points. */
  move(points) {
    if (this.path.length) {
      this.path.push(...points);
      this.onPolygon();
    }
    const stroke = this.stroke;
    if (!stroke) return;
    const spans = [];
    const { height, width } = this.image;
    for (const [x, y] of points) {
      capsule(spans, stroke.x, stroke.y, x, y, this.size, height, width);
      stroke.x = x;
      stroke.y = y;
    }
    if (spans.length) {
      this.overlay.paint(spans, stroke.value, boxOf(spans));
      for (const number of spans) stroke.spans.push(number);
    }
    if (performance.now() - stroke.sent > PIECE) this.flush();
  }

  /** The pointer goes up. */
  end() {
    if (this.path.length) this.correct();
    if (!this.stroke) return;
    this.flush();
    this.stroke = null;
    this.onEnd();
  }

  /** Hand over what the stroke has gained since the last piece. */
  flush() {
    const stroke = this.stroke;
    stroke.sent = performance.now();
    if (stroke.spans.length) this.hand(stroke.id, stroke.spans, stroke.value);
    stroke.spans = [];
  }

  hand(id, spans, value) {
    const box = boxOf(spans);
    const [top, left, bottom, right] = box;
    const header = {
      op: "stroke", image: this.image.image, stroke: id, corner: [top, left], shape: [bottom - top, right - left], value,
    };
    this.send(header, packMask(spans, box), spans);
  }

  /** Correct nothing: it was a slip, or two fingers. */
  giveUp() {
    this.path = [];
    this.onPolygon();
  }

  /** Correct the objects that the pointer has met. */
  correct() {
    const { path, tool } = this;
    this.path = [];
    this.onPolygon();
    const pixels = path.map(([x, y]) => [Math.floor(y), Math.floor(x)]).filter((at, i, all) => !i || String(at) !== String(all[i - 1]));
    const [first, last] = [pixels[0], pixels.at(-1)];
    if (tool === "grow") this.grow(path);
    else if (tool === "classify") this.classify(pixels[0]);
    else if (tool === "accept" || tool === "delete") this.ofObjects({ op: `${tool}_object`, points: [first] });
    else if (pixels.length < 2) this.tell({ merge: "Draw from one object into the other.", split: "Draw a line across the object.", outline: "Draw around the object." }[tool]);
    else if (tool === "merge") this.ofObjects({ op: "merge_objects", points: [first, last] });
    else if (tool === "split") this.ofObjects({ op: "split_objects", points: thinned(pixels) });
    else this.outline(path);
  }

  /** From the middle of an object to its edge; a click is one of a typical size. */
  grow(path) {
    const { at, reach } = circleOf(path);
    this.ofObjects({ op: "grow_object", at, reach: reach < 2 ? null : reach, value: this.classOfObject });
  }

  classify(at) {
    if (this.value === this.background) this.tell("Choose the class that the object is to have; Delete makes it background.");
    else this.ofObjects({ op: "classify_object", at, value: this.value });
  }

  /** The chosen class, or none where it is the background: then that of what lies below. */
  get classOfObject() {
    return this.value === this.background ? null : this.value;
  }

  outline(path) {
    const spans = polygon(path.flat(), this.image.height, this.image.width);
    if (!spans.length) {
      this.tell("This outline holds no pixel: draw around the object.");
      return;
    }
    const box = boxOf(spans);
    const [top, left, bottom, right] = box;
    this.ofObjects({ op: "draw_object", corner: [top, left], shape: [bottom - top, right - left], value: this.classOfObject }, packMask(spans, box));
  }

  ofObjects(header, payload) {
    this.send({ image: this.image.image, ...header }, payload, null);
  }

  /** Draw a whole shape as one stroke. */
  shape(spans, value = this.value) {
    if (!spans.length) return;
    this.overlay.paint(spans, value, boxOf(spans));
    this.hand(newId(), spans, value);
    this.onEnd();
  }

  setCorners(corners) {
    this.corners = corners;
    this.onPolygon();
  }

  addCorner(x, y) {
    const n = this.corners.length;
    const same = n >= 2 && Math.hypot(x - this.corners[n - 2], y - this.corners[n - 1]) < this.closeBy;
    const back = n >= 6 && Math.hypot(x - this.corners[0], y - this.corners[1]) < this.closeBy;
    if (same || back) this.closePolygon();
    else this.setCorners([...this.corners, x, y]);
  }

  closePolygon() {
    const { corners } = this;
    if (corners.length < 6) {
      if (corners.length) this.tell("A polygon needs three corners.");
      return;
    }
    this.setCorners([]);
    const spans = polygon(corners, this.image.height, this.image.width);
    if (!spans.length) this.tell("This polygon holds no pixel: draw a larger one.");
    this.shape(spans);
  }

  fill(row, column) {
    const { height, width } = this.image;
    if (row < 0 || column < 0 || row >= height || column >= width) return;
    const { labels, prediction } = this.overlay;
    const at = row * width + column;
    const label = labels[at];
    const area = flood(row, column, height, width, (i) => labels[i] === label);
    if (label !== UNLABELLED || !area.open) {
      this.shape(area.spans);
      return;
    }
    const id = prediction?.ids[at] ?? UNLABELLED;
    if (id === UNLABELLED) {
      this.tell("Nothing to fill here: the strokes around do not close, and there is no prediction yet.");
      return;
    }
    this.shape(flood(row, column, height, width, (i) => labels[i] === UNLABELLED && prediction.ids[i] === id).spans);
  }

  /** Draw again what the server has not drawn yet, over labels that came from it. */
  repaint(undrawn) {
    for (const { header, spans } of undrawn) this.overlay.paint(spans, header.value, boxOf(spans));
    if (this.stroke?.spans.length) this.overlay.paint(this.stroke.spans, this.stroke.value, boxOf(this.stroke.spans));
  }
}

/** Pixel where a pointer went down, and how far it went from there. */
export function circleOf(path) {
  const [[x, y], [toX, toY]] = [path[0], path.at(-1)];
  return { at: [Math.floor(y), Math.floor(x)], reach: Math.hypot(toX - x, toY - y) };
}

/** About 1,000 points of a line, the ends among them. */
function thinned(points) {
  const step = Math.ceil(points.length / 1000);
  return points.filter((_, i) => i % step === 0 || i === points.length - 1);
}

function newId() {
  return crypto.randomUUID();
}
