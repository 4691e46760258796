// All images at once: segment the folder, and the gallery of its results.

import { at } from "./address.js";
import { read } from "./objects.js";
import { byId, fill } from "./panel.js";

const ORDERS = {
  name: () => 0, // as they come
  accuracy: (a, b) => (a.expected_object_iou ?? 2) - (b.expected_object_iou ?? 2),
  warning: (a, b) => isBad(b) - isBad(a),
  most: (a, b) => (b.count ?? -1) - (a.count ?? -1),
  fewest: (a, b) => (a.count ?? Infinity) - (b.count ?? Infinity),
};
const isBad = (row) => Boolean(row.warning || row.reason);

export class Results {
  /** `send(header)` asks the server, `show(key)` opens an image, `openTable()` shows the table of all objects. */
  constructor(send, { show, openTable, fail, minutes }) {
    Object.assign(this, { send, show, openTable, fail, minutes });
    this.rows = [];
    this.waits = false; // for results that were asked for here
    byId("run-all").addEventListener("click", () => this.start(true));
    byId("run-corrected").addEventListener("click", () => this.start(false));
    byId("run-cancel").addEventListener("click", () => this.send({ op: "cancel_run" }));
    byId("run-images").addEventListener("input", () => this.suggestOutput());
    byId("show-results").addEventListener("click", () => this.open());
    for (const id of ["results-order", "results-warned"]) byId(id).addEventListener("change", () => this.draw());
    byId("results-table").addEventListener("click", () => this.openTable());
    for (const link of document.querySelectorAll("#results-tools a")) link.href = at(link.getAttribute("href"));
  }

  suggestOutput() {
    const name = byId("run-images").value.trim().replace(/[\\/]+$/, "").split(/[\\/]/).pop();
    byId("run-output").placeholder = this.output + (name ? `-${name}` : "");
  }

  start(retrain) {
    const [images, output] = [byId("run-images").value.trim(), byId("run-output").value.trim()];
    const suggested = images ? byId("run-output").placeholder : null;
    this.waits = this.send({ op: "segment", images: images || null, output: output || suggested, retrain });
  }

  /** What the server says of the run; `folder` is where results of this folder lie. */
  setRun(run, folder = null) {
    if (folder !== null) this.output = folder;
    this.suggestOutput();
    const { state, text, done, seconds_left: left } = run;
    const isBusy = state === "training" || state === "segmenting";
    byId("run-text").textContent = {
      none: "Masks, objects and tables of every image.",
      done: `${text}: ${run.output}`,
    }[state] ?? `${text} … ${left == null ? "" : this.minutes(left)}`;
    byId("run-notes").replaceChildren(...run.notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
    byId("run-progress").hidden = byId("run-cancel").hidden = !isBusy;
    byId("run-progress").value = done;
    byId("run-all").hidden = isBusy;
    byId("run-corrected").hidden = byId("show-results").hidden = state !== "done";
    if (state !== "done" || !this.waits) return;
    this.waits = false;
    this.open();
  }

  async open() {
    try {
      const { rows, known, output } = await read("results/rows");
      Object.assign(this, { rows, known: new Set(known) });
      const n = rows.reduce((sum, row) => sum + (row.count ?? 0), 0);
      byId("results-text").textContent = `${rows.length} ${rows.length === 1 ? "image" : "images"}, ${n} objects. Files in ${output}`;
      this.stamp = Date.now();
      this.draw();
      if (!byId("results").open) byId("results").showModal();
    } catch (error) {
      this.fail(error.message);
    }
  }

  draw() {
    const rows = this.rows.filter((row) => !byId("results-warned").checked || isBad(row)).sort(ORDERS[byId("results-order").value]);
    fill(byId("results-cards"), rows, (row) => this.card(row));
    byId("results-none").hidden = rows.length > 0;
  }

  card(row) {
    const item = document.createElement("li");
    const picture = document.createElement("img");
    const asked = { image: row.image, page: row.page, pages: row.pages, at: this.stamp };
    picture.loading = "lazy";
    picture.alt = "";
    const isWritten = row.status === "written";
    if (isWritten) picture.src = at("results/picture", { ...asked, small: true });
    const opened = document.createElement(this.known.has(row.key) ? "button" : "a");
    if (opened.tagName === "BUTTON") {
      opened.type = "button";
      opened.title = "Open it to correct it";
      opened.addEventListener("click", () => {
        byId("results").close();
        this.show(row.key);
      });
    } else if (isWritten) {
      opened.href = at("results/picture", asked);
      opened.target = "_blank";
    }
    const told = [["name", row.key]];
    if (row.count !== null) {
      const within = row.count_low_80 == null ? "" : ` (80 %: ${row.count_low_80} to ${row.count_high_80})`;
      told.push(["", `${row.count} ${row.count === 1 ? "object" : "objects"}${within}${row.checked ? `, ${row.checked} checked` : ""}`]);
    }
    if (row.expected_object_iou !== null) told.push(["", `Expected object IoU ${Math.round(100 * row.expected_object_iou)} %`]);
    if (isBad(row)) told.push(["warned", row.reason || row.warning]);
    const lines = told.map(([name, text]) => Object.assign(document.createElement("span"), { className: name, textContent: text, title: text }));
    opened.append(picture, ...lines);
    item.append(opened);
    return item;
  }
}
