// The curve of expected accuracy: one point each time it was estimated, with its range.

const NAMESPACE = "http://www.w3.org/2000/svg";
const [W, H, LEFT, RIGHT, TOP, BOTTOM] = [270, 120, 42, 8, 8, 28];

export function drawCurve(element, textElement, points) {
  const known = points.filter((point) => point.object_iou !== null);
  if (!known.length) {
    element.replaceChildren();
    textElement.textContent = "Appears when two images have labels of both classes.";
    return;
  }
  const last = known[known.length - 1];
  const percent = (share) => `${Math.round(100 * share)} %`;
  const range = last.low === null || last.high === null ? "" : ` (likely ${percent(last.low)} to ${percent(last.high)})`;
  const scores = `object IoU about ${percent(last.object_iou)}${range}, mean IoU with background ${percent(last.mean_iou)}`;
  const basis = `Each of ${last.n_images} images was predicted without its own labels. Strokes are mostly easy pixels: expect less on whole images.`;
  textElement.textContent = `Pixel scores on your labels: ${scores}. ${basis}`;
  if (known.length < 2) {
    element.replaceChildren();
    return;
  }
  const strokes = known.map((point) => point.n_strokes);
  const [first, end] = [Math.min(...strokes), Math.max(...strokes)];
  const x = (value) => LEFT + ((value - first) / Math.max(1, end - first)) * (W - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value) * (H - TOP - BOTTOM);
  const line = (values) => values.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": textElement.textContent });
  for (const share of [0, 0.5, 1]) {
    svg.append(make("text", { x: LEFT - 5, y: y(share) + 4, "text-anchor": "end" }, percent(share)));
  }
  svg.append(make("path", { class: "axis", d: `M${LEFT} ${TOP}V${H - BOTTOM}H${W - RIGHT}` }));
  const banded = known.filter((point) => point.low !== null && point.high !== null);
  const band = [...banded.map((p) => [p.n_strokes, p.high]), ...banded.reverse().map((p) => [p.n_strokes, p.low])];
  svg.append(make("polygon", { class: "band", points: line(band) }));
  svg.append(make("polyline", { class: "line", points: line(known.map((p) => [p.n_strokes, p.object_iou])) }));
  for (const point of known) svg.append(make("circle", { class: "point", cx: x(point.n_strokes), cy: y(point.object_iou), r: 2.5 }));
  svg.append(make("text", { x: LEFT, y: H - 14, "text-anchor": "middle" }, first));
  svg.append(make("text", { x: W - RIGHT, y: H - 14, "text-anchor": "end" }, end));
  svg.append(make("text", { x: (LEFT + W - RIGHT) / 2, y: H - 3, "text-anchor": "middle" }, "strokes"));
  element.replaceChildren(svg);
}

function make(tag, attributes, text = null) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}
