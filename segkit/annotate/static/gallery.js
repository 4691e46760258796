// The list of images: thumbnail, name, state, and rank among those worth labelling.

import { at } from "./address.js";
import { fill } from "./panel.js";

const STATES = { none: "no labels", some: "some labels", full: "complete" };

export class Gallery {
  constructor(list, onChoose) {
    Object.assign(this, { list, onChoose });
    this.rows = new Map(); // by key; those that are not shown yet have no button
    this.current = null;
  }

  setImages(images, anew = false) {
    const same = !anew && images.length === this.rows.size && images.every((entry) => this.rows.has(entry.key));
    if (!same) {
      this.rows = new Map(images.map((entry) => [entry.key, { entry, is: "none", rank: null }]));
      fill(this.list, this.rows.values(), (row) => this.row(row));
    }
    this.setStates(Object.fromEntries(images.map((entry) => [entry.key, entry.state])));
  }

  row(row) {
    const { key, page, n_pages } = row.entry;
    const item = document.createElement("li");
    const button = document.createElement("button");
    const picture = document.createElement("img");
    const [name, state, badge] = ["name", "state", "rank"].map((kind) => Object.assign(document.createElement("span"), { className: kind }));
    button.type = "button";
    button.title = n_pages > 1 ? `${key} (page ${page + 1} of ${n_pages})` : key;
    picture.loading = "lazy";
    picture.alt = "";
    picture.addEventListener("error", () => picture.classList.add("absent")); // why is told when the image is opened
    picture.src = at(`thumbnail/${encodeURIComponent(key)}`);
    name.textContent = key;
    badge.setAttribute("role", "img");
    button.append(picture, badge, name, state);
    button.addEventListener("click", () => this.onChoose(key));
    item.append(button);
    Object.assign(row, { button, state, badge });
    if (key === this.current) setTimeout(() => key === this.current && this.setCurrent(key)); // once it is in the list
    this.write(row);
    return item;
  }

  setStates(states) {
    for (const [key, state] of Object.entries(states)) {
      const row = this.rows.get(key);
      if (!row) continue;
      row.is = state;
      if (state !== "none") row.rank = null; // only images without labels are ranked
      this.write(row);
    }
  }

  /** The first of a ranking are worth labelling most. */
  setRanking(keys, most = 5) {
    for (const row of this.rows.values()) row.rank = null;
    keys.slice(0, most).forEach((key, i) => {
      const row = this.rows.get(key);
      if (row) row.rank = i + 1;
    });
    this.rows.forEach((row) => this.write(row));
  }

  write(row) {
    if (!row.button) return;
    row.state.textContent = STATES[row.is] ?? row.is;
    row.badge.hidden = !row.rank;
    row.badge.textContent = row.rank ?? "";
    row.badge.setAttribute("aria-label", row.rank ? `number ${row.rank} of the images worth labelling` : "");
    row.badge.title = row.badge.getAttribute("aria-label");
  }

  setCurrent(key) {
    this.rows.get(this.current)?.button?.removeAttribute("aria-current");
    this.current = key;
    const button = this.rows.get(key)?.button;
    button?.setAttribute("aria-current", "true");
    button?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** The image some places before or behind another. */
  neighbour(key, by) {
    const keys = [...this.rows.keys()];
    return keys[Math.min(keys.length - 1, Math.max(0, keys.indexOf(key) + by))];
  }
}
