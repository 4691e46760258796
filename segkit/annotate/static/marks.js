// Marks over the image: polygon in work, areas worth labelling, outlines of objects.

import { circleOf } from "./drawing.js";
import { ValueTiles } from "./tiles.js";

export class Marks {
  constructor(view, canvas, drawing) {
    Object.assign(this, { view, drawing });
    this.boxes = [];
    this.pointed = null; // box of the object that a row of the table is about
    this.bits = null; // pixels on outlines of objects, 8 a byte
    this.showOutlines = false;
    this.thickness = 1;
    this.tiles = new ValueTiles(view, this.render.bind(this), () => this.update());
    this.layer = view.addLayer(canvas, (context, box) => this.draw(context, box));
  }

  setSize(height, width) {
    this.height = height;
    this.width = width;
    this.setOutlines(null);
  }

  setOutlines(bits) {
    this.bits = bits;
    this.tiles.setSize(this.height ?? 0, this.width ?? 0);
    if (bits) this.tiles.mark([0, 0, this.height, this.width]);
    this.update();
  }

  update() {
    this.view.invalidate(this.layer);
  }

  draw(context, box) {
    const { ratio } = this.view;
    context.lineJoin = "round";
    if (this.showOutlines && this.bits) this.drawOutlines(context, box);
    this.boxes.forEach((area, i) => this.drawBox(context, area, i + 1));
    if (this.pointed) this.drawBox(context, this.pointed);
    const { corners } = this.drawing;
    if (this.drawing.path.length) {
      const line = new Path2D();
      if (this.drawing.tool === "grow") this.circle(line, this.drawing.path);
      else this.trace(line, this.drawing.path, this.drawing.tool === "outline");
      this.stroke(context, line, 1.5 * ratio, []);
    }
    if (!corners.length) return;
    const points = [];
    for (let i = 0; i < corners.length; i += 2) points.push([corners[i], corners[i + 1]]);
    const path = new Path2D();
    this.trace(path, [...points, this.drawing.tip ?? points[0]], false);
    for (const [x, y] of points) {
      const [px, py] = this.device(x, y);
      path.rect(px - 3 * ratio, py - 3 * ratio, 6 * ratio, 6 * ratio);
    }
    this.stroke(context, path, 1.5 * ratio, []);
  }

  /** Outlines keep their width on the screen, however small the image is shown. */
  drawOutlines(context, box) {
    const thickness = Math.max(1, Math.round(1.2 / (this.view.scale * this.view.ratio)));
    if (thickness !== this.thickness) {
      this.thickness = thickness;
      this.tiles.markAll();
    }
    this.tiles.draw(context, box);
  }

  /** White lines with a black rim, which are seen on every image. */
  render(pixels, top, left, height, width) {
    const lit = new Uint8Array(height * width);
    for (let i = 0, k = 0; i < height; i++) {
      const start = (top + i) * this.width + left;
      for (let bit = start; bit < start + width; bit++) lit[k++] = (this.bits[bit >> 3] >> (7 - (bit & 7))) & 1;
    }
    const t = this.thickness;
    const black = thicken(lit, height, width, t, t);
    const white = t === 1 ? lit : thicken(lit, height, width, t - 1, 0);
    for (let k = 0; k < pixels.length; k++) {
      if (white[k]) pixels[k] = 0xffffffff;
      else if (black[k]) pixels[k] = 0xa0000000;
    }
  }

  drawBox(context, [top, left, bottom, right], number = null) {
    const { ratio } = this.view;
    const [x0, y0, x1, y1] = this.view.toDevice([top, left, bottom, right]);
    const path = new Path2D();
    path.rect(x0, y0, x1 - x0, y1 - y0);
    this.stroke(context, path, 2 * ratio, [8 * ratio, 5 * ratio]);
    if (number === null) return;
    const side = 20 * ratio;
    context.fillStyle = "#000000";
    context.fillRect(x0, y0, side, side);
    context.fillStyle = "#ffffff";
    context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(String(number), x0 + side / 2, y0 + side / 2);
  }

  trace(path, points, closed) {
    points.forEach(([x, y], i) => {
      const [px, py] = this.device(x, y);
      if (i) path.lineTo(px, py);
      else path.moveTo(px, py);
    });
    if (closed) path.closePath();
  }

  circle(path, points) {
    const [x, y] = this.device(...points[0]);
    path.arc(x, y, circleOf(points).reach * this.view.scale * this.view.ratio, 0, 2 * Math.PI);
  }

  device(x, y) {
    const k = this.view.scale * this.view.ratio;
    return [(x - this.view.x) * k, (y - this.view.y) * k];
  }

  /** White on black is seen on every image. */
  stroke(context, path, width, dashes) {
    context.setLineDash([]);
    context.strokeStyle = "rgb(0 0 0 / 0.75)";
    context.lineWidth = 2.2 * width;
    context.stroke(path);
    context.setLineDash(dashes);
    context.strokeStyle = "#ffffff";
    context.lineWidth = width;
    context.stroke(path);
    context.setLineDash([]);
  }
}

/** Pixels with a lit one at most `back` behind or `ahead` before them, along rows and along columns. */
function thicken(lit, height, width, back, ahead) {
  const across = sweep(lit, height, width, width, 1, back, ahead);
  return sweep(across, width, height, 1, width, back, ahead);
}

function sweep(lit, lines, length, lineStep, step, back, ahead) {
  const out = new Uint8Array(lit.length);
  for (let line = 0; line < lines; line++) {
    const start = line * lineStep;
    for (let i = 0, next = -Infinity; i < length; i++) {
      if (lit[start + i * step]) next = i;
      if (i - next <= back) out[start + i * step] = 1;
    }
    for (let i = length - 1, last = Infinity; ahead && i >= 0; i--) {
      if (lit[start + i * step]) last = i;
      if (last - i <= ahead) out[start + i * step] = 1;
    }
  }
  return out;
}
