// Shapes as spans of pixels: flat lists of row, first column, column behind the last.

export const UNLABELLED = 255;

/** Spans of a round brush that is drawn from a to b, clipped to the image. */
export function capsule(spans, ax, ay, bx, by, diameter, height, width) {
  const radius = Math.max(diameter / 2, 0.71); // any smaller circle can lie between the centres of pixels
  const first = Math.max(0, Math.ceil(Math.min(ay, by) - radius - 0.5));
  const last = Math.min(height - 1, Math.floor(Math.max(ay, by) + radius - 0.5));
  const length = Math.hypot(bx - ax, by - ay);
  const nx = length ? (-(by - ay) / length) * radius : 0;
  const ny = length ? ((bx - ax) / length) * radius : 0;
  const corners = [ax + nx, ay + ny, bx + nx, by + ny, bx - nx, by - ny, ax - nx, ay - ny];
  for (let row = first; row <= last; row++) {
    const y = row + 0.5;
    let low = Infinity;
    let high = -Infinity;
    for (const [cx, cy] of [[ax, ay], [bx, by]]) {
      const rest = radius * radius - (y - cy) * (y - cy);
      if (rest >= 0) {
        low = Math.min(low, cx - Math.sqrt(rest));
        high = Math.max(high, cx + Math.sqrt(rest));
      }
    }
    for (let i = 0; length && i < 8; i += 2) { // edges of the rectangle between the two circles
      const [x0, y0, x1, y1] = [corners[i], corners[i + 1], corners[(i + 2) % 8], corners[(i + 3) % 8]];
      if (y0 !== y1 && (y - y0) * (y - y1) <= 0) {
        const x = x0 + ((y - y0) / (y1 - y0)) * (x1 - x0);
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
    }
    push(spans, row, Math.ceil(low - 0.5), Math.floor(high - 0.5) + 1, width);
  }
}

/** Spans of a polygon given as x, y, x, y, ...; even-odd rule, at the centres of pixels. */
export function polygon(points, height, width) {
  const spans = [];
  const n = points.length;
  const rows = points.filter((_, i) => i % 2);
  const first = Math.max(0, Math.ceil(Math.min(...rows) - 0.5));
  const last = Math.min(height - 1, Math.floor(Math.max(...rows) - 0.5));
  for (let row = first; row <= last; row++) {
    const y = row + 0.5;
    const crossings = [];
    for (let i = 0; i < n; i += 2) {
      const [x0, y0, x1, y1] = [points[i], points[i + 1], points[(i + 2) % n], points[(i + 3) % n]];
      if (y0 <= y !== y1 <= y) crossings.push(x0 + ((y - y0) / (y1 - y0)) * (x1 - x0));
    }
    crossings.sort((a, b) => a - b);
    for (let i = 0; i + 1 < crossings.length; i += 2) {
      push(spans, row, Math.ceil(crossings[i] - 0.5), Math.ceil(crossings[i + 1] - 0.5), width);
    }
  }
  return spans;
}

/** The 4-connected area of pixels that `inside(index)` accepts: its spans, and whether it reaches the image's edge. */
export function flood(row, column, height, width, inside) {
  const seen = new Uint8Array(height * width);
  const spans = [];
  let open = false;
  const stack = [row, column];
  while (stack.length) {
    const c = stack.pop();
    const r = stack.pop();
    const base = r * width;
    if (seen[base + c]) continue;
    let from = c;
    let to = c + 1;
    while (from > 0 && !seen[base + from - 1] && inside(base + from - 1)) from--;
    while (to < width && !seen[base + to] && inside(base + to)) to++;
    seen.fill(1, base + from, base + to);
    spans.push(r, from, to);
    open ||= r === 0 || r === height - 1 || from === 0 || to === width;
    for (const next of [r - 1, r + 1]) {
      if (next < 0 || next >= height) continue;
      const below = next * width;
      for (let i = from; i < to; i++) {
        const wanted = !seen[below + i] && inside(below + i);
        if (wanted && (i === from || seen[below + i - 1] || !inside(below + i - 1))) stack.push(next, i);
      }
    }
  }
  return { spans, open };
}

function push(spans, row, from, to, width) {
  const first = Math.max(0, from);
  const last = Math.min(width, to);
  if (last > first) spans.push(row, first, last);
}

/** First row and column, and those behind the last. */
export function boxOf(spans) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i < spans.length; i += 3) {
    box[0] = Math.min(box[0], spans[i]);
    box[1] = Math.min(box[1], spans[i + 1]);
    box[2] = Math.max(box[2], spans[i] + 1);
    box[3] = Math.max(box[3], spans[i + 2]);
  }
  return box;
}

/** The mask of spans within their box, 8 pixels a byte, the first in the highest bit. */
export function packMask(spans, box) {
  const [top, left, bottom, right] = box;
  const width = right - left;
  const bytes = new Uint8Array(((bottom - top) * width + 7) >> 3);
  for (let i = 0; i < spans.length; i += 3) {
    let bit = (spans[i] - top) * width + spans[i + 1] - left;
    const end = bit + spans[i + 2] - spans[i + 1];
    while (bit < end) {
      if ((bit & 7) === 0 && end - bit >= 8) {
        bytes[bit >> 3] = 255;
        bit += 8;
      } else {
        bytes[bit >> 3] |= 128 >> (bit & 7);
        bit++;
      }
    }
  }
  return bytes;
}
