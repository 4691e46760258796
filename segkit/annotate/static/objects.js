// The panel of objects: how many, how they are told apart, and the table of one image.

import { at } from "./address.js";
import { byId } from "./panel.js";

const MOST_ROWS = 1000; // that are shown; the file has all
const N_BINS = 24;
const LEAST_DEPTH = 0.01; // in radii, at the left end of the slider; the right end is 1
const PLACES = new Set(["image", "label", "class", "checked", "touches_border"]);

const depthOf = (value) => Number((LEAST_DEPTH ** (1 - value / 100)).toPrecision(2));
const valueOf = (depth) => Math.round(100 * (1 - Math.log(Math.max(depth, LEAST_DEPTH)) / Math.log(LEAST_DEPTH)));

export class ObjectPanel {
  /** `send(settings)` changes how objects are told apart, `point(box)` marks an object, or none. */
  constructor(send, point) {
    Object.assign(this, { send, point });
    this.settings = { depth: null, smallest: null, fill_holes: null };
    this.table = null;
    byId("depth").addEventListener("input", () => this.tellDepth(depthOf(Number(byId("depth").value))));
    byId("depth").addEventListener("change", () => this.change({ depth: depthOf(Number(byId("depth").value)) }));
    byId("smallest").addEventListener("change", () => {
      if (byId("smallest").reportValidity()) this.change({ smallest: byId("smallest").value === "" ? null : Number(byId("smallest").value) });
    });
    byId("fill-holes").addEventListener("change", () => this.change({ fill_holes: byId("fill-holes").checked }));
    byId("as-learnt").addEventListener("click", () => this.change({ depth: null, smallest: null, fill_holes: null }));
    byId("table-column").addEventListener("change", () => this.drawHistogram());
    byId("table").addEventListener("close", () => this.point(null));
  }

  change(changed) {
    const next = { ...this.settings, ...changed };
    this.setSettings(this.send(next) ? next : this.settings);
  }

  setSettings({ depth, smallest, fill_holes }) {
    this.settings = { depth, smallest, fill_holes };
    byId("smallest").value = smallest ?? "";
    byId("fill-holes").indeterminate = fill_holes === null;
    byId("fill-holes").checked = fill_holes === true;
    byId("as-learnt").disabled = depth === null && smallest === null && fill_holes === null;
  }

  /** What was found in the image that is shown; null is nothing yet. */
  show(message) {
    byId("object-count").textContent = byId("object-rule").textContent = "";
    if (!message) return;
    const { count, interval, checked } = message;
    const parts = [`${count}`];
    if (interval) parts.push(`(80 %: ${interval[0]} to ${interval[1]})`);
    if (checked) parts.push(`· ${checked} checked`);
    byId("object-count").textContent = parts.join(" ");
    byId("object-rule").textContent = message.rule.charAt(0).toUpperCase() + message.rule.slice(1);
    if (document.activeElement !== byId("depth")) byId("depth").value = message.depth === null ? 100 : valueOf(message.depth);
    this.tellDepth(message.depth);
  }

  tellDepth(depth) {
    byId("depth-value").textContent = depth === null ? "none" : depth.toPrecision(2);
  }

  /** Show the table of an image, if it is still shown when the table is there. */
  async openImage(key, isShown) {
    const path = `objects/${key.split("/").map(encodeURIComponent).join("/")}`;
    const table = await read(path);
    if (isShown()) this.open(table, at(path, "csv"), "Objects of this image", true);
  }

  /** Show the table of all images that were segmented. */
  async openAll() {
    this.open(await read("results/objects"), at("results/objects.csv"), "Objects of all images", false);
  }

  open(table, file, title, marks) {
    this.table = table;
    this.marks = marks;
    byId("table-title").textContent = title;
    const numbers = Object.keys(this.table).filter((name) => !PLACES.has(name) && !/^(bbox|centroid)/.test(name));
    const chosen = byId("table-column").value;
    byId("table-column").replaceChildren(...numbers.map((name) => new Option(name, name)));
    byId("table-column").value = numbers.includes(chosen) ? chosen : numbers[0] ?? "";
    byId("table-file").href = file;
    this.drawRows();
    this.drawHistogram();
    if (byId("table").open) byId("table").close();
    if (marks) byId("table").show(); // beside the image, whose objects it marks
    else byId("table").showModal();
  }

  drawRows() {
    const names = Object.keys(this.table).filter((name) => !name.startsWith("bbox"));
    const n = this.table.label.length;
    byId("table-text").textContent = n > MOST_ROWS ? `${n} objects, the first ${MOST_ROWS} are shown. The file has all.` : `${n} ${n === 1 ? "object" : "objects"}.${this.marks ? " Point at a row to see its object." : ""}`;
    const table = document.createElement("table");
    const header = table.createTHead().insertRow();
    for (const name of names) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      header.append(cell);
    }
    const body = table.createTBody();
    for (let i = 0; i < Math.min(n, MOST_ROWS); i++) {
      const row = body.insertRow();
      for (const name of names) row.insertCell().textContent = words(this.table[name][i]);
      const mark = () => this.point([0, 1, 2, 3].map((side) => this.table[`bbox-${side}`][i]));
      if (this.marks) row.addEventListener("pointerenter", mark);
    }
    byId("table-rows").replaceChildren(table);
  }

  drawHistogram() {
    const values = (this.table[byId("table-column").value] ?? []).filter((value) => value !== null);
    if (!values.length) {
      byId("histogram").textContent = "No values.";
      return;
    }
    const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const counts = new Array(N_BINS).fill(0);
    for (const value of values) counts[Math.min(N_BINS - 1, Math.floor((N_BINS * (value - low)) / (high - low || 1)))]++;
    const most = Math.max(1, ...counts);
    const bars = counts.map((n, i) => `<rect x="${10 * i}" y="${60 * (1 - n / most)}" width="9" height="${(60 * n) / most}"><title>${n}</title></rect>`);
    const ends = `<text x="0" y="73">${words(low)}</text><text x="${10 * N_BINS}" y="73" text-anchor="end">${words(high)}</text>`;
    byId("histogram").innerHTML = `<svg viewBox="0 0 ${10 * N_BINS} 76" role="img" aria-label="${values.length} values from ${words(low)} to ${words(high)}">${bars.join("")}${ends}</svg>`;
  }
}

/** Read JSON of the server, or throw what it says is wrong. */
export async function read(path) {
  const answer = await fetch(at(path), { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

function words(value) {
  if (typeof value === "boolean") return value ? "yes" : "";
  return typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(4) : String(value ?? "");
}
