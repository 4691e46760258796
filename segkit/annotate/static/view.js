// Where the image is on the screen, and when each layer is drawn.

const MOST_ZOOM = 64;

export class View {
  constructor(stage, onChange) {
    this.stage = stage;
    this.onChange = () => {};
    this.layers = [];
    this.height = this.width = 1; // of the image
    this.scale = 1; // screen pixels of CSS for each pixel of the image
    this.x = this.y = 0; // the image's point in the upper left corner
    this.asked = false;
    this.afterFrame = [];
    this.resize();
    this.onChange = onChange;
    new ResizeObserver(() => this.resize()).observe(stage);
  }

  /** A canvas that `draw(context, box)` draws where it is dirty: box is in pixels of the image. */
  addLayer(canvas, draw) {
    const layer = { canvas, context: canvas.getContext("2d"), draw, dirty: null };
    this.layers.push(layer);
    this.fitCanvas(layer);
    return layer;
  }

  resize() {
    const { clientWidth, clientHeight } = this.stage;
    const fitted = this.isFitted;
    this.clientWidth = clientWidth;
    this.clientHeight = clientHeight;
    this.ratio = window.devicePixelRatio || 1;
    this.layers.forEach((layer) => this.fitCanvas(layer));
    if (fitted) this.fit();
    else this.redraw();
  }

  fitCanvas(layer) {
    layer.canvas.width = Math.round(this.clientWidth * this.ratio);
    layer.canvas.height = Math.round(this.clientHeight * this.ratio);
  }

  setImage(height, width) {
    this.height = height;
    this.width = width;
    this.fit();
  }

  fit() {
    const room = Math.min(this.clientWidth / this.width, this.clientHeight / this.height);
    this.scale = this.fitScale = Math.max(1e-3, room * 0.97);
    this.x = (this.width - this.clientWidth / this.scale) / 2;
    this.y = (this.height - this.clientHeight / this.scale) / 2;
    this.redraw();
  }

  get isFitted() {
    return this.fitScale === this.scale;
  }

  /** The point of the image under a point of the stage. */
  toImage(px, py) {
    return [this.x + px / this.scale, this.y + py / this.scale];
  }

  toStage(x, y) {
    return [(x - this.x) * this.scale, (y - this.y) * this.scale];
  }

  zoom(factor, px = this.clientWidth / 2, py = this.clientHeight / 2) {
    const [x, y] = this.toImage(px, py);
    const least = Math.min(0.5, 0.5 * Math.min(this.clientWidth / this.width, this.clientHeight / this.height));
    this.scale = Math.min(MOST_ZOOM, Math.max(least, this.scale * factor));
    this.x = x - px / this.scale;
    this.y = y - py / this.scale;
    this.keepInSight();
  }

  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.keepInSight();
  }

  /** Show a box of the image, with some room around it. */
  showBox([top, left, bottom, right]) {
    const room = Math.min(this.clientWidth / (right - left), this.clientHeight / (bottom - top));
    this.scale = Math.min(16, room * 0.6);
    this.x = (left + right - this.clientWidth / this.scale) / 2;
    this.y = (top + bottom - this.clientHeight / this.scale) / 2;
    this.keepInSight();
  }

  /** The centre of the stage stays on the image. */
  keepInSight() {
    const [w, h] = [this.clientWidth / this.scale / 2, this.clientHeight / this.scale / 2];
    this.x = Math.min(this.width - w, Math.max(-w, this.x));
    this.y = Math.min(this.height - h, Math.max(-h, this.y));
    this.redraw();
  }

  /** The part of the image that is seen, in whole pixels. */
  box() {
    const [right, bottom] = this.toImage(this.clientWidth, this.clientHeight);
    const clip = (value, most) => Math.min(most, Math.max(0, value));
    return [
      clip(Math.floor(this.y), this.height),
      clip(Math.floor(this.x), this.width),
      clip(Math.ceil(bottom), this.height),
      clip(Math.ceil(right), this.width),
    ];
  }

  redraw() {
    this.layers.forEach((layer) => { layer.dirty = "all"; });
    this.onChange();
    this.ask();
  }

  /** Draw a layer at the next frame: all of it, or a box of the image. */
  invalidate(layer, box = "all") {
    if (layer.dirty === null || box === "all") layer.dirty = box;
    else if (layer.dirty !== "all") {
      const old = layer.dirty;
      layer.dirty = [
        Math.min(old[0], box[0]), Math.min(old[1], box[1]), Math.max(old[2], box[2]), Math.max(old[3], box[3]),
      ];
    }
    this.ask();
  }

  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((time) => this.frame(time));
  }

  frame(time) {
    this.asked = false;
    const start = performance.now();
    for (const layer of this.layers) {
      const dirty = layer.dirty;
      if (dirty === null) continue;
      layer.dirty = null;
      this.drawLayer(layer, dirty);
    }
    const spent = performance.now() - start;
    this.afterFrame.forEach((listener) => listener(time, spent));
  }

  drawLayer(layer, dirty) {
    const { context, canvas } = layer;
    const seen = this.box();
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (dirty === "all") {
      context.clearRect(0, 0, canvas.width, canvas.height);
      layer.draw(context, seen);
      return;
    }
    const box = [
      Math.max(dirty[0], seen[0]), Math.max(dirty[1], seen[1]), Math.min(dirty[2], seen[2]), Math.min(dirty[3], seen[3]),
    ];
    if (box[0] >= box[2] || box[1] >= box[3]) return;
    const [x0, y0, x1, y1] = this.toDevice(box);
    context.save();
    context.beginPath();
    context.rect(x0, y0, x1 - x0, y1 - y0);
    context.clip();
    context.clearRect(x0, y0, x1 - x0, y1 - y0);
    layer.draw(context, box);
    context.restore();
  }

  /** A box of the image in whole pixels of the canvases: boxes that touch leave no gap. */
  toDevice([top, left, bottom, right]) {
    const k = this.scale * this.ratio;
    return [
      Math.round((left - this.x) * k), Math.round((top - this.y) * k),
      Math.round((right - this.x) * k), Math.round((bottom - this.y) * k),
    ];
  }
}
