// Controls of the right-hand panel that only set values: sizes, opacity, view of the prediction, brightness.

export const byId = (id) => document.getElementById(id);

const AT_ONCE = 200; // items that are made between two frames

/** Fill a list with what `make(entry)` gives: some now, the others when there is time, for there may be many thousand. */
export function fill(list, entries, make) {
  const run = (list.run = {}); // a later call takes the place of this one
  list.replaceChildren();
  const left = entries[Symbol.iterator]();
  const more = () => {
    if (list.run !== run) return;
    const some = [];
    while (some.length < AT_ONCE) {
      const next = left.next();
      if (next.done) break;
      some.push(make(next.value));
    }
    list.append(...some);
    if (some.length === AT_ONCE) setTimeout(more);
  };
  more();
}

/** What this browser keeps from one visit to the next; nothing, if it is not allowed to. */
export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`segkit-${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`segkit-${name}`, JSON.stringify(value));
  } catch {
    // the next visit begins as the first one did
  }
}

/** Radio buttons of one name. */
export class Choice {
  constructor(name, onChange) {
    this.inputs = [...document.querySelectorAll(`input[name="${name}"]`)];
    this.onChange = onChange;
    for (const input of this.inputs) input.addEventListener("change", () => onChange(input.value));
  }

  set(value) {
    for (const input of this.inputs) input.checked = input.value === value;
    this.onChange(value);
  }

  next() {
    const i = this.inputs.findIndex((input) => input.checked);
    this.set(this.inputs[(i + 1) % this.inputs.length].value);
  }
}

/** A slider with its value in words. */
export function slider(id, words, onChange) {
  const input = byId(id);
  const show = () => {
    byId(`${id}-value`).textContent = words(Number(input.value));
    onChange(Number(input.value));
  };
  input.addEventListener("input", show);
  return {
    input,
    set(value) {
      input.value = value;
      show();
    },
  };
}

/** Channel and brightness of images that do not fill 8 bits; gives the query of tile addresses. */
export class Contrast {
  constructor(onChange) {
    this.onChange = onChange;
    this.image = null;
    this.channel = byId("channel");
    this.auto = byId("auto");
    this.low = slider("low", (value) => this.words(value), () => this.changed("low"));
    this.high = slider("high", (value) => this.words(value), () => this.changed("high"));
    this.channel.addEventListener("change", () => {
      this.showRange();
      this.report();
    });
    this.auto.addEventListener("change", () => {
      this.low.input.disabled = this.high.input.disabled = this.auto.checked;
      if (this.auto.checked) this.showRange();
      this.report();
    });
  }

  setImage(image) {
    const before = this.image;
    this.image = image;
    const sameKind = before?.channels === image.channels && before?.depth === image.depth;
    if (!sameKind) {
      const all = image.channels === 1 ? "the only one" : image.channels === 3 ? "all, in colour" : "all, in false colours";
      this.channel.replaceChildren(new Option(all, ""));
      for (let i = 0; image.channels > 1 && i < image.channels; i++) this.channel.append(new Option(`${i + 1}`, i));
      this.auto.checked = true;
      this.low.input.disabled = this.high.input.disabled = true;
      byId("contrast").open = image.depth !== "8" || ![1, 3].includes(image.channels);
    }
    if (this.auto.checked) this.showRange();
  }

  /** The values that the automatic contrast shows black and white. */
  showRange() {
    if (!this.auto.checked) return;
    const { range } = this.image;
    const [low, high] = this.channel.value === "" ? [Math.min(...range.map((r) => r[0])), Math.max(...range.map((r) => r[1]))] : range[this.channel.value];
    // Half of the slider is for what is there: values up to twice the white point.
    this.most = this.image.depth === "8" ? 1 : Math.min(1, Math.max(2 * high, 1e-6));
    this.silent = true;
    this.low.set(Math.round((1000 * low) / this.most));
    this.high.set(Math.round((1000 * high) / this.most));
    this.silent = false;
  }

  words(value) {
    const share = (value / 1000) * (this.most ?? 1);
    const depth = this.image?.depth;
    return depth === "float" ? share.toPrecision(3) : String(Math.round(share * (depth === "16" ? 65535 : 255)));
  }

  changed(which) {
    if (!this.image || this.silent) return;
    if (Number(this.low.input.value) >= Number(this.high.input.value)) { // the other one makes room
      const other = which === "low" ? this.high : this.low;
      const value = which === "low" ? Number(this.low.input.value) + 1 : Number(this.high.input.value) - 1;
      other.input.value = value;
      byId(`${other.input.id}-value`).textContent = this.words(Number(other.input.value));
    }
    this.report();
  }

  report() {
    const query = new URLSearchParams();
    if (this.channel.value !== "") query.set("channel", this.channel.value);
    const [low, high] = [this.low, this.high].map(({ input }) => (Number(input.value) / 1000) * this.most);
    if (!this.auto.checked && low < high) {
      query.set("low", low);
      query.set("high", high);
    }
    this.onChange(query.size ? `?${query}` : "");
  }
}
