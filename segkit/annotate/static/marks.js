// Marks over the image: polygon in work, areas worth labelling, outlines of objects.

export class Marks {
  constructor(view, canvas, drawing) {
    Object.assign(this, { view, drawing });
    this.boxes = [];
    this.outlines = [];
    this.showOutlines = false;
    this.layer = view.addLayer(canvas, (context) => this.draw(context));
  }

  update() {
    this.view.invalidate(this.layer);
  }

  draw(context) {
    const { ratio } = this.view;
    context.lineJoin = "round";
    if (this.showOutlines && this.outlines.length) {
      const path = new Path2D();
      for (const outline of this.outlines) this.trace(path, outline.map(([row, column]) => [column, row]), true);
      this.stroke(context, path, 1.2 * ratio, []);
    }
    this.boxes.forEach((box, i) => this.drawBox(context, box, i + 1));
    const { corners } = this.drawing;
    if (!corners.length) return;
    const points = [];
    for (let i = 0; i < corners.length; i += 2) points.push([corners[i], corners[i + 1]]);
    const path = new Path2D();
    this.trace(path, points, false);
    for (const [x, y] of points) {
      const [px, py] = this.device(x, y);
      path.rect(px - 3 * ratio, py - 3 * ratio, 6 * ratio, 6 * ratio);
    }
    this.stroke(context, path, 1.5 * ratio, []);
  }

  drawBox(context, [top, left, bottom, right], number) {
    const { ratio } = this.view;
    const [x0, y0, x1, y1] = this.view.toDevice([top, left, bottom, right]);
    const path = new Path2D();
    path.rect(x0, y0, x1 - x0, y1 - y0);
    this.stroke(context, path, 2 * ratio, [8 * ratio, 5 * ratio]);
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
